"""States assigned by several processes are those of one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stillweb.snapshots._os import forks
from stillweb.snapshots._os.places import FilePlace
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.index import stating
from stillweb.snapshots.index.build import build, scans
from stillweb.snapshots.index.cdxj import capture_of
from stillweb.snapshots.index.gathering import Part, Site
from stillweb.snapshots.index.resolving import resolve
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.container import Container, open_directory
from stillweb.snapshots.warc.reading import Archives
from stillweb.snapshots.writer import Writer
from tests.support.walks import record

HTML = (("Content-Type", "text/html"),)


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
def test_what_is_damaged_has_no_state_and_takes_none_from_others(root: Path) -> None:
    container = open_directory(root)
    try:
        (parts,) = scans(container).values()
        whole = _lines(container, parts, 1)
        archives = Archives(container.archives)
        captures = sorted((c for line in whole if (c := capture_of(line))), key=lambda c: c.place)
        archive = root / "archive" / "data-00000.warc.gz"
        data = bytearray(archive.read_bytes())
        data[captures[0].offset + captures[0].length // 2] ^= 1
        archive.write_bytes(data)
        for workers in (1, 2):
            lines = _lines(container, parts, workers)
            assert len(lines) == len(whole)
            assert any(b'"changes":true' in line for line in lines)
        with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz: the record at offset \d+ is damaged"):
            archives.read(captures[0])
    finally:
        container.close()


def test_answers_whose_heads_show_no_cookie_are_not_read_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    with Writer.open(tmp_path / "site") as writer:
        for number in range(4):
            session, cookie = f"s{number}", ("Cookie", f"sid={number:032x}; lang=en")
            gives = (("Set-Cookie", f"sid={number:032x}"),) if number == 0 else ()
            form = (cookie, ("Content-Type", "application/x-www-form-urlencoded"))
            pages = [
                (Request("POST", "https://a.example/filter", form, b"lang=en"), 303, gives, b""),
                *((Request("GET", f"https://a.example/list?page={n}", (cookie,)), 200, (), b"<p>%d" % n) for n in range(5)),
            ]  # fmt: skip
            for at, (request, status, more, body) in enumerate(pages):
                events = (session, 2 * at + 1, 2 * at + 2)
                writer.exchange(Exchange(request, status, "OK", (*HTML, *more), body, moment, *events))
    container = open_directory(tmp_path / "site")
    try:
        (parts,) = scans(container).values()
        resolve([parts], [])
        sites = [site for part in parts for site in part.sites.values()]
        told = [asked for site in sites for asked in site.requests() if asked is not None]
        assert [asked[4] for asked in told].count(False) == 1
        read: list[int] = []
        whole = FilePlace.read

        def reading(place: FilePlace, offset: int, length: int) -> bytes:
            read.append(offset)
            return whole(place, offset, length)

        monkeypatch.setattr(FilePlace, "read", reading)
        lines = _lines(container, parts, 1)
        few = len(read)
        for site in sites:
            site.asked, site.packed = [(*one[:4], False) if one else None for one in site.requests()], []
        read.clear()
        assert _lines(container, parts, 1) == lines
        assert few < len(read)
    finally:
        container.close()


def test_a_copy_of_a_file_changes_no_state(root: Path) -> None:
    def states() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        container = open_directory(root)
        try:
            for line in build(container).lines:
                if capture := capture_of(line):
                    found.setdefault(f"{capture.begin} {capture.exact}", set()).add(capture.state)
        finally:
            container.close()
        return found

    before = states()
    archive = root / "archive" / "data-00000.warc.gz"
    (root / "archive" / "copy.warc.gz").write_bytes(archive.read_bytes())
    assert states() == before
