"""States assigned by several processes are those of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshots.archives.container import Container, open_directory
from snapshots.archives.reading import Archives
from snapshots.errors import DamagedInput
from snapshots.index import stating
from snapshots.index.build import scans
from snapshots.index.gathering import Part, Site
from snapshots.machine import forks
from tests.support.walks import record


def _lines(container: Container, parts: list[Part], workers: int) -> list[bytes]:
    sites: list[Site] = [site for part in parts for site in part.sites.values()]
    return sorted(stating.final_lines(sites, Archives(container.archives), workers))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    walks = [
        [("get", "/about"), ("filter", "toys"), ("contact", "hi")],
        [("filter", "books"), ("get", "/about")],
    ]
    with record(tmp_path / "walks", walks) as snapshot:  # type: ignore[arg-type]
        return Path(snapshot.paths[0])


@pytest.fixture(params=["forks", "new processes"])
def several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stating, "MANY", 1)
    monkeypatch.setattr(stating, "FORKED", 1)
    if request.param == "new processes":
        for module in (forks, stating):
            monkeypatch.setattr(module, "can_fork", lambda: False)


@pytest.mark.usefixtures("several")
def test_several_processes_give_the_lines_of_one(root: Path) -> None:
    container = open_directory(root)
    try:
        (parts,) = scans(container).values()
        one = _lines(container, parts, 1)
        assert _lines(container, parts, 2) == one
        assert any(b'"changes":true' in line for line in one)
        for part in parts:  # read again where they are not known
            for site in part.sites.values():
                site.asked, site.packed = [None] * len(site.lines), []
        assert _lines(container, parts, 2) == one
    finally:
        container.close()


@pytest.mark.usefixtures("several")
def test_an_archive_that_is_damaged_meanwhile_is_told_as_it_is(root: Path) -> None:
    container = open_directory(root)
    try:
        (parts,) = scans(container).values()
        archive = root / "archive" / "data-00000.warc.gz"
        archive.write_bytes(bytes(len(archive.read_bytes())))
        with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz"):
            _lines(container, parts, 2)
    finally:
        container.close()
