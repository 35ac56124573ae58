"""Provenance: what recorded a snapshot is told, without secrets, and does not change its id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.snapshots import Snapshot
from stillweb.snapshots.contents.provenance import Provenance
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.proxy.sites import Answer, serve
from tests.snapshots.making import record
from tests.support.command_line import stillweb

ENTRY = Provenance(
    "stillweb/9.9", "2026-01-02T03:04:05Z", "Plan9 mips", "browser", {"pdfs": True, "parallel": 2}
)


def made(path: Path, entry: Provenance | None) -> Path:
    with Writer.open(path, provenance=entry) as writer:
        record(writer, "http://example.test/", b"<p>Hello")
    return path


def test_it_is_told_and_no_part_of_the_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = seal(made(tmp_path / "a", ENTRY)), seal(made(tmp_path / "b", None))
    assert with_it.id == without.id
    _, out = call(capsys, "verify", with_it.path)
    told = "recorded 2026-01-02T03:04:05Z by stillweb/9.9 on Plan9 mips: browser --parallel 2 --pdfs"
    assert told in out
    _, out = call(capsys, "ls", with_it.path)
    assert told in out
    assert call(capsys, "view", with_it.path, "--export", tmp_path / "pages")[0] == 0
    assert "stillweb/9.9 on Plan9 mips" in (tmp_path / "pages" / "snapshot-a.wacz.html").read_text()


def test_each_recording_adds_its_own_and_a_lost_package_loses_none(tmp_path: Path) -> None:
    made(tmp_path / "a", ENTRY)
    with Writer.open(tmp_path / "a", provenance=ENTRY) as writer:
        record(writer, "http://example.test/2", b"<p>Hello again")
    (tmp_path / "a" / "datapackage.json").unlink()
    (tmp_path / "a" / "indexes" / "index.cdxj").unlink()
    with Snapshot.open(tmp_path / "a") as snapshot:
        assert snapshot.provenance == [ENTRY, ENTRY]


def test_one_of_another_form_is_an_error(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "a", settings={"recordings": [{"software": 5}]}) as writer:
        record(writer, "http://example.test/", b"<p>Hello")
    with Snapshot.open(tmp_path / "a") as snapshot, pytest.raises(DamagedInput, match="list of recordings"):
        _ = snapshot.provenance


def test_what_a_command_records_names_its_switches_and_no_secret(tmp_path: Path) -> None:
    def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return 200, {"Content-Type": "text/html"}, b"<p>Hello"

    secret = "synthetic" + "-token-0123456789abcdef"
    with serve(answer) as base:
        words = ["curl", "-sS", "-H", f"Authorization: Bearer {secret}", base]
        done = stillweb("record", "-o", tmp_path / "a", "--insecure", "--", *words)
    assert done.code == 0, done.err
    package = (tmp_path / "a" / "datapackage.json").read_text()
    entry = json.loads(package)["stillweb"]["settings"]["recordings"][0]
    assert (entry["origin"], entry["settings"]) == ("program curl", {"insecure": True})
    assert secret not in package
    assert base not in package
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path / "a")])
