"""Small files that unpack to much: served as they are, refused by name, in bounded memory."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard

from benchmarks.damaging import bombs
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots import decompression
from stillweb.snapshots.contents.package import pack_options, unpack_options
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.http.encodings import EncodingProblem, LongBody, decode, decode_pieces
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot

MB = 1 << 20
BODY = b"<p>word " * MB
PACKS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are reached in a moment."""
    for module in ("decompression", "http.encodings", "warc.warc", "opening", "text.text"):
        for name, value in (("IN_MEMORY", MB), ("MOST", 4 * MB)):
            monkeypatch.setattr(f"stillweb.snapshots.{module}.{name}", value, raising=False)


@pytest.mark.parametrize("coding", PACKS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_body_is_unpacked_in_parts_and_within_bounds(coding: str, times: int) -> None:
    packed = BODY
    for _ in range(times):
        packed = PACKS[coding](packed)
    named = ", ".join([coding] * times)
    parts = decode_pieces([packed], named, most=len(BODY))
    assert max(map(len, parts)) <= decompression.PART
    assert b"".join(decode_pieces([packed], named, most=len(BODY))) == BODY
    with pytest.raises(LongBody, match="the body unpacks to more than 7 MB"):
        list(decode_pieces([packed], named, most=len(BODY) - 1))
    with pytest.raises(EncodingProblem, match="the body unpacks to more than 1 MB"):
        decode(packed, named)
    assert decode(packed, named, limit=100) == BODY[:100]


def archive(tmp_path: Path, coding: str, body: bytes) -> Path:
    path = tmp_path / "x.warc.gz"
    path.write_bytes(bombs._page(coding, body))
    return path


@pytest.mark.parametrize("coding", PACKS)
@pytest.mark.parametrize("accepted", ["gzip, deflate, br, zstd", "identity"])
def test_a_body_that_unpacks_to_too_much_is_served_as_it_is(
    tmp_path: Path, coding: str, accepted: str
) -> None:
    packed = PACKS[coding](BODY)
    with Snapshot.open(archive(tmp_path, coding, packed)) as snapshot:
        answerer = Answerer(snapshot, Ledger())
        reply = answerer.answer(
            Request("GET", bombs.URL, (("Accept-Encoding", accepted),)), answerer.state("")
        )
        body = reply.body if reply.pieces is None else b"".join(reply.pieces())
    assert (reply.status, body) == (200, packed)
    assert ("Content-Encoding", coding) in reply.fields


def test_a_body_too_large_for_memory_is_unpacked_as_it_is_sent(tmp_path: Path) -> None:
    body = BODY[: 3 * MB]
    with Snapshot.open(archive(tmp_path, "gzip", gzip.compress(body))) as snapshot:
        answerer = Answerer(snapshot, Ledger())
        reply = answerer.answer(Request("GET", bombs.URL), answerer.state(""))
        assert reply.pieces is not None
        assert b"".join(reply.pieces()) == body
    assert ("Content-Length", str(len(body))) in reply.fields


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zstandard.ZstdCompressor().compress(data)])
def test_a_record_too_large_for_memory_is_served_as_a_stream(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    head = bombs._answer(b"", len(BODY))
    path = tmp_path / "x.warc.gz"
    path.write_bytes(pack(bombs._head(b"response", len(head) + len(BODY)) + head + BODY + b"\r\n\r\n"))
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        with pytest.raises(TooLarge, match=r"x\.warc\.gz: the record at offset 0 unpacks to more than 1 MB"):
            snapshot.read(capture)
        assert snapshot.read_start(capture, 10).body == BODY[:10]
        answerer = Answerer(snapshot, Ledger())
        reply = answerer.answer(Request("GET", bombs.URL), answerer.state(""))
        assert reply.pieces is not None
        assert b"".join(reply.pieces()) == BODY
    assert verify(path) == []


def test_a_member_of_a_zip_that_unpacks_to_too_much_is_left_out_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.wacz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/a.warc.gz", bombs._page("", b"<p>x"))
        z.writestr("datapackage.json", b"a" * 5 * MB)
    with Snapshot.open(path) as snapshot:
        assert [c.url for c in snapshot.captures()] == [bombs.URL]
        assert any("x.wacz!datapackage.json unpacks to more than 4 MB" in note for note in snapshot.notes)
    assert any("x.wacz!datapackage.json unpacks to more than 4 MB" in p.message for p in verify(path))


def test_an_index_of_others_that_unpacks_to_too_much_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.snapshots.decompression.MOST", MB)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/a.warc.gz", bombs._page("", b"<p>x"))
        z.writestr("indexes/index.cdx.gz", gzip.compress(b"\0" * 5 * MB))
    path = tmp_path / "x.wacz"
    path.write_bytes(out.getvalue())
    (found,) = [p for p in verify(path) if p.check == "index"]
    assert "unpacks to more than 1 MB" in found.message


def test_options_that_unpack_to_too_much_are_refused() -> None:
    assert unpack_options(pack_options({"a": "b" * 5000})) == {"a": "b" * 5000}
    with pytest.raises(TooLarge, match="a record's options unpacks to more than 16 MB"):
        unpack_options(pack_options({"a": "b" * 17 * MB}))


@pytest.mark.slow
def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    for found in bombs.measure(["twice.warc.gz"], tmp_path, ["lookup", "fetch", "verify"]):
        assert found[2] < bombs.MOST, found
        assert found[4] == "", found


def zipped(tmp_path: Path, count: int, size: int) -> Path:
    """A WACZ with files of zeros before and behind its archive."""
    path = tmp_path / "x.wacz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("pages/first.jsonl", bytes(size))
        z.writestr("archive/a.warc.gz", bombs._page("", b"<p>x"))
        for number in range(count):
            z.writestr(f"pages/{number}.jsonl", bytes(size))
    return path


def test_many_small_files_of_a_zip_are_unpacked_within_a_bound(tmp_path: Path) -> None:
    """400 files of 4 MB, 1.6 MB on the disk, took 1.6 GB in every command."""
    path = zipped(tmp_path, 10, MB)
    told = "pages/2.jsonl and 7 more: the files together unpack to more than 4 MB: not read"
    with Snapshot.open(path) as snapshot:
        assert [c.url for c in snapshot.captures()] == [bombs.URL]
        assert any(told in note for note in snapshot.notes)
    assert any(told in problem.message for problem in verify(path))


def test_a_zip_with_an_endless_list_of_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million names of files took 600 MB."""
    path = zipped(tmp_path, 100, 1)
    monkeypatch.setattr("stillweb.snapshots.opening.LARGEST_LIST", 4000)
    with pytest.raises(TooLarge, match="the zip's list of files has more than"):
        Snapshot.open(path)
