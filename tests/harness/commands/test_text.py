"""`stillweb text`: lists, shows an upgrade, and writes one only when told to."""

import json
import os
from pathlib import Path

import pytest

from stillweb.snapshots._os.locking import lock_directory
from tests.harness.commands.calling import call
from tests.harness.small_site import make, urls
from tests.snapshots.operations.test_upgrading import SITE, site, texts
from tests.support.command_line import stillweb


def test_texts_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "text", site(tmp_path / "site"))
    assert code == 0
    assert "ancient/0.1" in out
    assert f"{SITE}/old" in out
    assert out.endswith("4 texts\n")
    code, out = call(capsys, "text", tmp_path / "site.wacz", "--json")
    assert {one["extractor"] for one in json.loads(out)} == {"ancient", "stillweb"}


def test_an_upgrade_is_shown_page_by_page_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site(tmp_path / "site")
    before = path.read_bytes()
    code, out = call(capsys, "text", path, "--upgrade", "--parallel", "1")
    assert code == 1
    assert out.startswith(f"changed {SITE}/old  +1 -2 lines\n    --- ancient/0.1\n")
    assert out.endswith("1 changed, 0 added, 0 would be lost and stay, 1 only made by another version\n")
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["site", "site.wacz"]


def test_an_accepted_upgrade_leaves_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site(tmp_path / "site")
    new = tmp_path / "new.wacz"
    code, out = call(capsys, "text", path, "--upgrade", "--accept", "-o", new, "--json")
    assert code == 0
    assert [one["kind"] for one in json.loads(out)["texts"]] == ["changed", "same"]
    assert texts(new)[f"{SITE}/old"][0] == "stillweb"
    code, _ = call(capsys, "text", new, "--upgrade")
    assert code == 0


@pytest.mark.parametrize(
    "words", [["--accept"], ["-o", "new"], ["--upgrade", "--accept"], ["--upgrade", "-o", "new"]]
)
def test_nothing_is_written_by_half_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = site(tmp_path / "site")
    code, _ = call(capsys, "text", path, *words)
    assert code == 2


@pytest.mark.slow
def test_what_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    path, theirs = make(tmp_path / "s"), tmp_path / ".new.new" / "archive" / "data-00000.warc.gz"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    words = ("text", path, "--upgrade", "--accept", "-o", tmp_path / "new")
    handle = lock_directory(theirs.parent, "")
    try:
        done = stillweb(*words)
    finally:
        os.close(handle)
    assert (done.code, "another process is writing" in done.said) == (2, True)
    assert theirs.read_bytes() == b"theirs"
    stillweb(*words)  # what a killed one left is no hindrance
    assert urls(tmp_path / "new") == urls(path)
    assert not theirs.exists()
