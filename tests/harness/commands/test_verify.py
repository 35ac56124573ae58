"""`stillweb verify --secrets`: what still looks like a secret, and how the command ends."""

import json
from pathlib import Path

import pytest

from stillweb import seal
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.harness.tools.frozen import Recorder
from tests.snapshots.operations.test_leaks import AWS, JWT

PAGE = "https://a.test/"


def make(path: Path, body: str, dom: bytes = b"<p>nothing</p>") -> Path:
    with Writer.open(path) as writer:
        Recorder(writer).add(PAGE, body)
        view = View(view_address(PAGE, ()), PAGE, PAGE, "A", (), timestamp="20250101000000")
        writer.view(view, {"dom": dom})
    return path


def test_a_clean_snapshot_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "s", "<p>choose a password</p>")
    assert call(capsys, "verify", path) == (0, f"{path}: sound\n")
    assert call(capsys, "verify", path, "--secrets") == (0, f"{path}: sound\n{path}: no secrets\n")


def test_what_looks_secret_is_named_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "s", f"<p>{JWT}</p>", f"<p>{AWS}</p>".encode())
    code, out = call(capsys, "verify", path, "--secrets")
    assert code == 1
    assert f"JSON web token in response body of {PAGE}" in out
    assert f"AWS access token in view's dom of {PAGE}" in out
    assert f"{path}: 2 secrets" in out
    assert JWT[:12] not in out
    assert call(capsys, "verify", path)[0] == 0
    code, out = call(capsys, "verify", path, "--secrets", "--json")
    assert (code, [leak["kind"] for leak in json.loads(out)["secrets"]]) == (
        1,
        ["JSON web token", "AWS access token"],
    )


def test_damage_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "s", f"<p>{JWT}</p>")
    archive = next((path / "archive").iterdir())
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    assert call(capsys, "verify", path, "--secrets")[0] == 3


def test_several_snapshots_are_read_as_replay_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make(tmp_path / "one", "<p>penguins</p>"), make(tmp_path / "two", f"<p>walruses {JWT}</p>")
    code, out = call(capsys, "verify", one, two, "--secrets")
    assert (code, out.splitlines()[:2]) == (1, [f"{one}: sound", f"{one}: no secrets"])
    assert out.endswith(f"{two}: sound\n{two}: 1 secret\n")
    one, two = (seal(make(tmp_path / word, f"<p>{word}</p>")).path for word in ("penguins", "walruses"))
    assert PAGE in call(capsys, "search", one, two, "walruses")[1]
    assert call(capsys, "search", one, two, "penguins")[1] == "nothing found\n"  # lies under another answer
