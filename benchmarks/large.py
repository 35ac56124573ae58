"""Large snapshots for the rows of lookup, opening, indexing and sealing: made quickly, the same at every time.

    python -m benchmarks.large archives FOLDER CAPTURES [FILES]     WARC files of real pages, with sessions and forms
    python -m benchmarks.large sealed FILE CAPTURES                 a sealed snapshot whose index has so many lines

The archives are what a recorder writes: sessions on some sites, pages asked for by several of them, images and
scripts beside the pages, forms that change what is shown. The sealed snapshot has the index and
the package of one with so many captures, over an archive that holds a single record that all lines point to: what
is measured with it is looking up and opening, not reading.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator
from warcio.warcwriter import WARCWriter

from benchmarks import corpus
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.contents.package import write_package
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.index.cdxj import capture_line
from stillweb.snapshots.request import Request
from stillweb.snapshots.wacz import pack
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.writer import Writer

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
AGENT = (
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36"),
    ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
    ("Accept-Language", "en-GB,en;q=0.9"),
    ("Accept-Encoding", "gzip, deflate, br"),
)
STATEFUL = 10  # of so many sites one has a form that changes what it shows
FORM = (("Content-Type", "application/x-www-form-urlencoded"),)
HTML = (("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store"))


def exchanges(count: int, seed: int = 7) -> Iterator[Exchange]:
    """So many exchanges, in sessions of some sixty, over one site for each ten sessions."""
    chance = random.Random(seed)
    pages = [p.read_bytes() for p in corpus.find(400, 2_000, 20_000) if p.suffix == ".html"]
    drawn = random.Random(0)  # of no seed: what one file has under an address the others have, too
    images = [drawn.randbytes(drawn.randrange(500, 20_000)) for _ in range(50)]
    made = session = 0
    while made < count:
        site = f"https://www.site{session // 10}.example"
        name = f"session-{seed}-{session}"
        stateful = (session // 10) % STATEFUL == 0
        cookie = (("Cookie", f"sid={chance.randbytes(16).hex()}; lang=en"),) if stateful else ()
        moment = BEGIN + timedelta(minutes=session)
        chosen = ""
        for number in range(min(60, count - made)):
            begin, end = 2 * number + 1, 2 * number + 2
            moment += timedelta(milliseconds=300)
            at = (moment, name, begin, end)
            if stateful and number % 12 == 6:
                chosen = chance.choice(("apples", "pears", "plums"))
                request = Request(
                    "POST", f"{site}/filter", (*AGENT, *cookie, *FORM), f"kind={chosen}".encode()
                )
                yield Exchange(request, 303, "See Other", (("Location", "/list?page=1"),), b"", *at)
            elif number % 5 == 4:
                image = chance.randrange(len(images))
                request = Request("GET", f"{site}/img/{image}.png", (*AGENT, *cookie))
                yield Exchange(request, 200, "OK", (("Content-Type", "image/png"),), images[image], *at)
            else:
                page = number // 2 if stateful else (session % 10) * 40 + number
                path = f"list?page={page}" if stateful or page % 3 == 0 else f"guide/chapter-{page}.html"
                request = Request("GET", f"{site}/{path}", (*AGENT, *cookie))
                body = pages[page % len(pages)] + f"<p>{page} {chosen} {site}</p>".encode()
                yield Exchange(request, 200, "OK", HTML, body, *at)
        made += min(60, count - made)
        session += 1


def archives(root: Path, count: int, files: int = 4) -> Path:
    """An open snapshot directory with so many captures in some WARC files; the index is not made."""
    return _written(root, files, lambda number: exchanges(count // files, seed=number + 1))


def repeated(root: Path, files: Path, urls: list[tuple[str, int]], times: int) -> Path:
    """An open snapshot directory of files as fetched from so many hosts, each in a WARC file of its own."""

    def fetched(number: int) -> Iterator[Exchange]:
        for at, (path, _) in enumerate(urls):
            request = Request("GET", f"https://host{number}.example{path}", AGENT)
            headers = (
                ("Server", "nginx"),
                ("Content-Type", corpus.media(Path(path))),
                ("Accept-Ranges", "bytes"),
            )
            moment = BEGIN + timedelta(seconds=at)
            body = (files / path[1:]).read_bytes()
            session = f"session-{number}"
            yield Exchange(request, 200, "OK", headers, body, moment, session, 2 * at + 1, 2 * at + 2)

    return _written(root, times, fetched)


def rewritten(root: Path, source: Path) -> Path:
    """The same exchanges as another program leaves them: written by warcio, without what is ours in their records."""
    if (root / "archive").is_dir():
        return root
    part = root.with_name(f"{root.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "archive").mkdir(parents=True)
    for file in sorted((source / "archive").iterdir()):
        with file.open("rb") as old, (part / "archive" / file.name).open("wb") as new:
            writer = WARCWriter(new, gzip=True)
            for record in ArchiveIterator(old):
                fields = record.rec_headers.headers
                fields[:] = [
                    (n, v) for n, v in fields if not n.startswith("WARC-Stillweb") and "Digest" not in n
                ]
                writer.write_record(record)  # which adds digests of its own
    part.rename(root)
    return root


def _written(root: Path, files: int, exchanges_of: Callable[[int], Iterable[Exchange]]) -> Path:
    """An open snapshot directory without its index, if it is not there; `exchanges_of` are those of a WARC file."""
    if (root / "archive").is_dir():
        return root
    (root / "archive").mkdir(parents=True)
    for number in range(files):
        part = root.with_name(f"{root.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        writer = Writer.open(part)
        for exchange in exchanges_of(number):
            writer.exchange(exchange)
        (part / "archive" / "data-00000.warc.gz").rename(root / "archive" / f"data-{number:05d}.warc.gz")
        writer._release()  # no index is wanted
        shutil.rmtree(part)
    return root


def url_of(number: int) -> str:
    """The URL of a capture of `sealed`."""
    return f"https://site{number % 997}.example/path/{number % 7919}/page-{number}.html?id={number}"


def _line(number: int, place: Capture) -> bytes:
    url = url_of(number)
    key = request_key(Request("GET", url))
    capture = Capture(
        key.urlkey, "20250101000000", url, "GET", 200, "text/html", f"sha256:{key.exact}", place.filename, place.offset,
        place.length, place.request_offset, place.request_length, key.canonical, key.exact, "default", 2 * number,
        2 * number + 1,
    )  # fmt: skip
    return capture_line(capture, key.exact)


def sealed(path: Path, count: int) -> Path:
    """A sealed snapshot with so many index lines, all of which point to one record."""
    if path.exists():
        return path
    root = path.with_suffix(".parts")
    shutil.rmtree(root, ignore_errors=True)
    with Writer.open(root) as writer:
        body = b"<p>" + b"word " * 1000
        place = writer.exchange(
            Exchange(Request("GET", url_of(0), AGENT), 200, "OK", HTML, body, BEGIN, "default", 1, 2)
        )
    lines = sorted(_line(n, place) for n in range(count))
    with open(root / "indexes" / "index.cdxj", "wb") as out:
        for line in lines:
            out.write(line + b"\n")
    write_package(root, profile=None, settings={}, software="benchmark")
    container = open_directory(root)
    pack(container, path)
    container.close()
    shutil.rmtree(root)
    return path


def main() -> None:
    """See the module."""
    what, path, count, *more = sys.argv[1:]
    if what == "archives":
        archives(Path(path), int(count), *map(int, more))
    else:
        sealed(Path(path), int(count))


if __name__ == "__main__":
    main()
