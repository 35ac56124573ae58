"""Files scanned by several processes give what one gives."""

from pathlib import Path

import pytest

from stillweb.snapshots._os import processes
from stillweb.snapshots._os.random_access import FileSource
from stillweb.snapshots.index import parallel
from stillweb.snapshots.index.build import assemble
from stillweb.snapshots.index.cdxj import parse_line
from stillweb.snapshots.index.gathering import ScanResult
from stillweb.snapshots.index.parallel import scan_file
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.writer import Writer, reindex
from tests.snapshots.making import record
from tests.snapshots.malformed import http, other, packed
from tests.snapshots.malformed import record as warc_record


@pytest.fixture(params=["forks", "new processes"], autouse=True)
def many_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LARGE", 100)
    monkeypatch.setattr(parallel, "FORKED", 100)
    monkeypatch.setattr(parallel, "PIECE", 1)
    if request.param == "new processes":
        for module in (processes, parallel):
            monkeypatch.setattr(module, "can_fork", lambda: False)


def lines(parts: list[ScanResult], path: Path) -> list[bytes]:
    return assemble([parts]).lines


@pytest.mark.slow
def test_several_processes_find_the_same(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for number in range(60):
            body = b"same" if number % 3 else b"<p>%d" % number * 50
            record(writer, f"http://example.test/{number}", body, method="POST", sent=b"x" * number)
            record(writer, f"http://other.test/{number}", body)
        writer.resource("text", "http://example.test/", b"text")
    path = tmp_path / "s" / "archive" / "data-00000.warc.gz"
    alone = lines(scan_file(FileSource(path), "x", lambda _: None, 1), path)
    assert sum(b"warc/revisit" in line for line in alone) > 50
    progress: list[int] = []
    for workers in (2, 3):
        several = scan_file(FileSource(path), "x", progress.append, workers)
        assert len(several) > workers
        assert lines(several, path) == alone
    assert sum(progress) == 2 * path.stat().st_size


def test_files_are_listed_with_their_digests_also_when_they_grow_after_the_scan(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for number in range(9):
            record(writer, f"http://example.test/{number}", b"<p>%d</p>" % number)
    (tmp_path / "s" / "archive" / "other.warc.gz").write_bytes(packed(warc_record(http()), other()))
    assert reindex(tmp_path / "s") == 11
    assert verify(tmp_path / "s") == []
    (tmp_path / "s" / "indexes" / "index.cdxj").unlink()
    with Writer.open(tmp_path / "s") as writer:
        assert set(writer._hashes) == {"data-00000.warc.gz", "other.warc.gz"}
        record(writer, "http://example.test/more", b"more")
    assert verify(tmp_path / "s") == []


def test_a_pair_over_the_seam_is_found(tmp_path: Path) -> None:
    link = b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-000000000001>"
    block = b"POST / HTTP/1.1\r\nHost: example.test\r\n\r\nsent"
    data = packed(warc_record(http()), warc_record(block, kind=b"request", number=2, fields=link))
    path = tmp_path / "x.warc.gz"
    path.write_bytes(data)
    parts = scan_file(FileSource(path), "x", lambda _: None, 2)
    assert len(parts) == 3  # two, and what they have between them
    assert [parse_line(line)[2]["method"] for line in lines(parts, path)] == ["POST"]


def test_an_archive_in_an_archive_is_not_mistaken_for_records(tmp_path: Path) -> None:
    inner = b"".join(warc_record(http(), uri=b"http://inner.test/%d" % n, number=n) for n in range(40))
    path = tmp_path / "x.warc"
    path.write_bytes(warc_record(http(inner)) + other())
    found = lines(scan_file(FileSource(path), "x", lambda _: None, 2), path)
    urls = sorted(parse_line(line)[2]["url"] for line in found)
    assert urls == ["http://example.test/", "http://example.test/next"]
