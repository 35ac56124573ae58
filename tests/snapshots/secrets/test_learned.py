"""Secrets that a recording learned are kept until a command has searched for them, and nobody else can read them."""

from pathlib import Path

import pytest

from stillweb.snapshots.secrets.keystore import LEARNED as FILE
from stillweb.snapshots.secrets.keystore import SecretFile
from stillweb.snapshots.secrets.redact import Redactor
from tests.support.room import room_for

SECRETS = ["tok-9d8f7a6s5d4f3a2s1d0f", "pässwörd with spaces"]


def kept(path: Path) -> Redactor:
    redactor = Redactor.for_snapshot(path / "s", path / "state", keep=True)
    for secret in SECRETS:
        redactor.learn(secret)
        redactor.learn(secret)
    return redactor


@pytest.fixture(autouse=True)
def snapshot(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    return tmp_path / "s"


def test_each_is_kept_once_and_encrypted(tmp_path: Path, snapshot: Path) -> None:
    learned = kept(tmp_path).learned
    assert learned is not None
    assert learned.read() == (SECRETS, True)
    data = (snapshot / FILE).read_bytes()
    assert len(data.splitlines()) == 2
    assert b"tok-" not in data
    learned.forget()
    assert learned.read() == ([], True)


def test_what_is_in_every_page_is_not_looked_for(tmp_path: Path, snapshot: Path) -> None:
    Redactor.for_snapshot(snapshot, tmp_path / "state", keep=True).learn("hunter")
    assert not (snapshot / FILE).exists()


def test_nothing_is_kept_unless_asked(tmp_path: Path, snapshot: Path) -> None:
    Redactor.for_snapshot(snapshot, tmp_path / "state").learn(SECRETS[0])
    assert not (snapshot / FILE).exists()


@pytest.mark.parametrize("damage", ["cut short", "another key"])
def test_what_cannot_be_read_is_told(tmp_path: Path, snapshot: Path, damage: str) -> None:
    learned = kept(tmp_path).learned
    assert learned is not None
    if damage == "cut short":
        data = (snapshot / FILE).read_bytes()
        (snapshot / FILE).write_bytes(data[:-20])
        assert learned.read() == (SECRETS[:1], False)
    else:
        assert SecretFile(snapshot, b"another").read() == ([], False)


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path, snapshot: Path) -> None:
    redactor = kept(tmp_path)
    size = (snapshot / FILE).stat().st_size
    with room_for(size + 10), pytest.raises(OSError, match="File too large"):
        redactor.learn("another-9d8f7a6s5d4f3a2s1d0f")
    assert redactor.learned is not None
    assert redactor.learned.read() == (SECRETS, True)
