"""Imports into a snapshot that is there: only what something came to is looked at again, and the index is as if all were made anew."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from stillweb.snapshots.operations.importing import copy_capture, import_files
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.container import INDEX
from stillweb.snapshots.writer import Writer, reindex
from tests.snapshots.malformed import http, packed
from tests.snapshots.malformed import record as warc_record

# what makes a site one whose states are to be found, where it is met there
METHODS = ([b"GET"], [b"GET"], [b"GET"], [b"GET", b"GET", b"HEAD"], [b"GET", b"GET", b"POST"])
FIELDS = (
    [b""],
    [b""],
    [b""],
    [b"", b"Cookie: session=8f3kQz7LmWp2Xv9R\r\n"],
    [b"", b"X-Csrf: 8f3kQz7LmWp2Xv9R\r\n"],
)
ANSWERS = ([b"200 OK"], [b"200 OK"], [b"200 OK", b"404 Not Found"], [b"200 OK", b"302 Found\r\nLocation: /"], [b"200 OK", b"304 Not Modified"])  # fmt: skip
MEDIA = ([b"text/html"], [b"text/html", b"image/png"], [b"image/png"], [b"application/json"])


def piece(path: Path, sites: list[int], count: int, first: int, chance: random.Random) -> Path:
    """An archive of some sites, each of one kind in all its pieces, whose pages are now and then answered otherwise."""
    records = []
    for number in range(first, first + count):
        site = chance.choice(sites)
        kind = random.Random(site)
        choices = [kind.choice(one) for one in (METHODS, FIELDS, ANSWERS, MEDIA)]
        method, fields, status, media = map(chance.choice, choices)
        uri = b"http://www.site%d.test/%d" % (site, chance.randrange(8))
        asked = b"%s /%s HTTP/1.1\r\nHost: www.site%d.test\r\n%s" % (
            method,
            uri.rpartition(b"/")[2],
            site,
            fields,
        )
        body = b"choice=%d" % chance.randrange(3) if method == b"POST" else b""
        asked += b"Content-Length: %d\r\n\r\n%s" % (len(body), body) if body else b"\r\n"
        told = b"" if method == b"HEAD" or b"304" in status else b"<p>%d" % (chance.random() < 0.1)
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\n" % (status, media)
        date = b"2020-01-02T03:%02d:%02dZ" % (number // 60 % 60, number % 60)
        named = b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>" % number
        records.append(warc_record(http(told, head), uri=uri, number=number, date=date))
        records.append(
            warc_record(asked, kind=b"request", uri=uri, number=10_000 + number, date=date, fields=named)
        )
    path.write_bytes(packed(*records))
    return path


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))


def by_import(part: Path, out: Path) -> None:
    import_files([part], out)


def by_recording(part: Path, out: Path) -> None:
    with Snapshot.open(part) as source, Writer.open(out) as writer:
        for capture in source.captures():
            copy_capture(source, capture, writer)


@pytest.mark.slow
@pytest.mark.parametrize("add", [by_import, by_recording])
@pytest.mark.parametrize("seed", [3, 6])
def test_the_index_is_as_if_made_anew(tmp_path: Path, seed: int, add: Callable[[Path, Path], None]) -> None:
    chance = random.Random(seed)
    for number in range(4):
        sites = chance.sample(range(seed * 40, seed * 40 + 40), 15)
        add(piece(tmp_path / f"{number}.warc.gz", sites, 120, number * 200, chance), tmp_path / "s")
        written = (tmp_path / "s" / INDEX).read_bytes()
        reindex(tmp_path / "s")
        assert (tmp_path / "s" / INDEX).read_bytes() == written
