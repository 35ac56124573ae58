"""Imports of many captures: their memory doesn't grow with them, and what is written is the same."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.index.on_disk import OnDisk
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.container import INDEX
from stillweb.snapshots.writer import reindex
from tests.snapshots.malformed import http, packed
from tests.snapshots.malformed import record as warc_record

ROOT = Path(__file__).parents[3]
REVISIT = (
    b"WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest\r\n"
    b"WARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z"
)


@pytest.fixture(autouse=True)
def as_if_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files are scanned in many parts, and nothing of them is small."""
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stillweb.snapshots.index.build.SMALL", 0)
    monkeypatch.setattr("stillweb.snapshots.index.parallel.FORKED", 1 << 16)
    monkeypatch.setattr("stillweb.snapshots.index.parallel.PIECE", 1 << 12)


def crawl(path: Path, count: int) -> Path:
    """A crawl of several sites: plain pages, pages answered otherwise, redirects, pictures, revisits of earlier and later ones."""
    chance = random.Random(count)
    records = []
    for number in range(count):
        uri = b"http://www.site%d.test/%d" % (number % 7, chance.randrange(count))
        body = b"<p>%d" % chance.randrange(count)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
        if number % 7 == 1 and number % 11 == 0:
            head = b"HTTP/1.1 302 Found\r\nLocation: /\r\n"
        if number % 5 == 0:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
        if number % 9 == 0:
            of = b"http://www.site%d.test/%d" % (chance.randrange(7), chance.randrange(count))
            fields = REVISIT % of
            records.append(
                warc_record(http(b"", head), kind=b"revisit", uri=uri, number=number, fields=fields)
            )
        else:
            records.append(warc_record(http(body, head), uri=uri, number=number))
        asked = b"GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (uri[26:], uri[7:25])
        if number % 13:
            named = b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>" % number
            records.append(warc_record(asked, kind=b"request", uri=uri, number=count + number, fields=named))
    path.write_bytes(packed(*records))
    return path


def recorded_order(capture: Capture) -> tuple[str, int, str, str, int]:
    return capture.session, capture.begin, capture.timestamp, capture.filename, capture.offset


@pytest.mark.parametrize("damaged", [False, True])
def test_captures_sorted_on_disk_are_those_of_the_index(tmp_path: Path, damaged: bool) -> None:
    path = crawl(tmp_path / "x.warc.gz", 600)
    if damaged:
        data = path.read_bytes()
        path.write_bytes(data[:20_000] + bytes(100) + data[20_100:-50])
    with OnDisk() as held, Snapshot.open(path) as indexed, Snapshot.open(path, spill=held) as source:
        assert list(source.captures()) == []
        assert source.notes == indexed.notes
        found = list(held.captures())
        assert found == sorted(indexed.captures(), key=recorded_order)
        assert any(one.original for one in found)
        assert held.count() == len(found) > 400


def test_an_archive_in_an_archive_is_taken_once(tmp_path: Path) -> None:
    """The parts find records within a record, and drop them."""
    inner = b"".join(warc_record(http(b"%d" % n), uri=b"http://in.test/%d" % n, number=n) for n in range(400))
    outer = [warc_record(http(b"x"), uri=b"http://out.test/%d" % n, number=1000 + n) for n in range(200)]
    big = warc_record(http(inner), uri=b"http://out.test/big", number=999)
    (tmp_path / "x.warc").write_bytes(b"".join([*outer[:100], big, *outer[100:]]))
    report = import_files([tmp_path / "x.warc"], tmp_path / "s")
    assert (report.captures, report.notes) == (201, [])
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert not any("in.test" in capture.url for capture in snapshot.captures())


@pytest.mark.slow
def test_what_is_known_on_disk_makes_the_index_that_the_records_make(tmp_path: Path) -> None:
    report = import_files([crawl(tmp_path / "x.warc.gz", 600)], tmp_path / "s")
    written = (tmp_path / "s" / INDEX).read_bytes()
    assert written.count(b"\n") == report.captures
    assert verify(tmp_path / "s") == []
    reindex(tmp_path / "s")
    assert (tmp_path / "s" / INDEX).read_bytes() == written
    # gone on with: what was there before is known again
    again = import_files([crawl(tmp_path / "y.warc.gz", 300)], tmp_path / "s")
    written = (tmp_path / "s" / INDEX).read_bytes()
    assert written.count(b"\n") == report.captures + again.captures
    reindex(tmp_path / "s")
    assert (tmp_path / "s" / INDEX).read_bytes() == written


PEAK = """
import sys
from stillweb.snapshots.index import build, parallel
from stillweb.snapshots.operations.importing import import_files
build.SMALL, parallel.FORKED = 0, 1 << 18
import_files([sys.argv[1]], sys.argv[2])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_does_not_grow_with_captures(tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (1500, 4500):
        records: list[bytes] = []
        for number in range(count):
            uri = b"http://www.site%d.test/%d" % (number % 9, number)
            named = b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>" % number
            asked = b"GET /%d HTTP/1.1\r\n\r\n" % number
            records.append(warc_record(http(b"%d" % number), uri=uri, number=number))
            records.append(warc_record(asked, kind=b"request", uri=uri, number=count + number, fields=named))
        path = tmp_path / f"{count}.warc.gz"
        path.write_bytes(packed(*records))
        command = [sys.executable, "-c", PEAK, str(path), str(tmp_path / str(count))]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
        peaks.append(int(told))
    assert (peaks[1] - peaks[0]) * 1024 / 3000 < 2500  # it was 4,500
