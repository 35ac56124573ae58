"""The key of pseudonyms: the user's own, another one for each snapshot, and in none of its files."""

import json
import stat
import threading
from pathlib import Path

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.secrets.keystore import snapshot_key
from stillweb.snapshots.secrets.redact import Redactor

SESSION = "8f3kQz7LmWp2Xv9Rt5Yc"


def test_key_is_private_stable_and_differs_by_snapshot(tmp_path: Path) -> None:
    state = tmp_path / "state"
    key = snapshot_key("salt", state)
    assert stat.S_IMODE((state / "redaction.key").stat().st_mode) == 0o600
    assert snapshot_key("salt", state) == key
    assert snapshot_key("other", state) != key
    assert snapshot_key("salt", tmp_path / "another user") != key
    (state / "redaction.key").write_text("broken")
    with pytest.raises(DamagedInput, match=r"redaction\.key"):
        snapshot_key("salt", state)


def test_reopening_a_snapshot_gives_the_same_pseudonyms_and_its_files_hold_no_key(tmp_path: Path) -> None:
    snapshot = tmp_path / "snap"
    snapshot.mkdir()
    first = Redactor.for_snapshot(snapshot, tmp_path / "state")
    again = Redactor.for_snapshot(snapshot, tmp_path / "state")
    assert first.pseudonym(SESSION) == again.pseudonym(SESSION)
    salt = json.loads((snapshot / "stillweb" / "redaction.json").read_text())["salt"]
    assert Redactor(salt.encode()).pseudonym(SESSION) != first.pseudonym(SESSION)
    (snapshot / "stillweb" / "redaction.json").write_text("{}")
    with pytest.raises(DamagedInput, match=r"redaction\.json"):
        Redactor.for_snapshot(snapshot, tmp_path / "state")


def test_many_processes_agree_on_one_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: keys.append(snapshot_key("s", tmp_path / "state"))) for _ in range(12)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(keys) == 12
    assert len(set(keys)) == 1
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["redaction.key"]
