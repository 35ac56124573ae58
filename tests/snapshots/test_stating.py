"""States assigned by several processes are those of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshots import stating
from snapshots.build import scans
from snapshots.container import Container, open_container
from snapshots.errors import DamagedInput
from snapshots.indexing import Findings
from snapshots.reading import Archives
from tests.support.walks import record


def _lines(container: Container, parts: list[Findings], workers: int) -> list[bytes]:
    captures = [a.capture for part in parts for a in part.answers if a.capture is not None]
    identities = {
        a.capture.place: a.identity for part in parts for a in part.answers if a.capture is not None
    }
    requests = {a.capture.place: a.request for part in parts for a in part.answers if a.capture and a.request}
    return sorted(stating.stated_lines(captures, identities, Archives(container.archives), requests, workers))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    walks = [
        [("get", "/about"), ("filter", "toys"), ("contact", "hi")],
        [("filter", "books"), ("get", "/about")],
    ]
    with record(tmp_path / "walks", walks) as snapshot:  # type: ignore[arg-type]
        return Path(snapshot.paths[0])


def test_several_processes_give_the_lines_of_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stating, "MANY", 1)
    container = open_container(root)
    try:
        parts = list(scans(container).values())
        one = _lines(container, parts, 1)
        assert _lines(container, parts, 2) == one
        assert any(b'"changes":true' in line for line in one)
        for part in parts:  # read again where they are not known
            for answer in part.answers:
                answer.request = None
        assert _lines(container, parts, 2) == one
    finally:
        container.close()


def test_an_archive_that_is_damaged_meanwhile_is_told_as_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stating, "MANY", 1)
    container = open_container(root)
    try:
        parts = list(scans(container).values())
        archive = root / "archive" / "data-00000.warc.gz"
        archive.write_bytes(bytes(len(archive.read_bytes())))
        with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz"):
            _lines(container, parts, 2)
    finally:
        container.close()
