"""Records that no gzip member guards: a block that is not the one its digest tells is never given out."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.warc import Proof
from tests.snapshots.malformed import PAGE, http, record

URL = "http://example.test/page"
BODY = b"<p>A sum of 1,000 and of much more beside it.</p>" * 40


def written() -> bytes:
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=False)
    head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(URL, "response", payload=io.BytesIO(BODY), http_headers=head)
    )
    return out.getvalue()


def plain(data: bytes) -> tuple[str, bytes]:
    return "x.warc", data


def framed(data: bytes) -> tuple[str, bytes]:
    return "x.warc.zst", zstandard.ZstdCompressor(write_checksum=False).compress(data)


@pytest.mark.parametrize("form", [plain, framed])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_block_with_another_digest_is_damage(
    tmp_path: Path, form: Callable[[bytes], tuple[str, bytes]], damaged: bool
) -> None:
    data = written().replace(b"1,000", b"9,000", 1) if damaged else written()
    name, stored = form(data)
    (tmp_path / name).write_bytes(stored)
    with Snapshot.open(tmp_path / name) as snapshot:
        [capture] = snapshot.captures()
        if not damaged:
            assert snapshot.read(capture).body == BODY
            assert snapshot.open_body(capture).read() == BODY
            return
        with pytest.raises(DamagedInput, match=rf"{name}: the record at offset 0 is damaged.*block digest"):
            snapshot.read(capture)
        with pytest.raises(DamagedInput, match="block digest"):
            snapshot.open_body(capture).read()


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "SHA-512", "md5"])
@pytest.mark.parametrize("encode", [bytes.hex, lambda raw: base64.b32encode(raw).decode()])
def test_digests_as_programs_write_them(algorithm: str, encode: Callable[[bytes], str]) -> None:
    value = hashlib.new(algorithm.lower().replace("-", ""), b"two pieces").digest()
    proof = Proof(f"{algorithm}:{encode(value)}")
    proof.feed(b"two ")
    assert not proof.holds()
    proof.feed(b"pieces")
    assert proof.holds()


@pytest.mark.parametrize("declared", [None, "", "crc:1234", "sha1", "sha1: "])
def test_where_no_digest_is_told_nothing_is_held_against_it(declared: str | None) -> None:
    proof = Proof(declared)
    proof.feed(b"anything")
    assert proof.holds()


@pytest.mark.parametrize("form", [plain, framed])
def test_a_block_that_lost_a_part_is_damage(
    tmp_path: Path, form: Callable[[bytes], tuple[str, bytes]]
) -> None:
    name, stored = form(written().replace(b"1,000", b"", 1))
    (tmp_path / name).write_bytes(stored)
    with Snapshot.open(tmp_path / name) as snapshot:
        for capture in snapshot.captures():
            with pytest.raises(DamagedInput, match=rf"{name}: the record at offset 0"):
                snapshot.read(capture)


def test_a_damaged_frame_hides_no_other_though_it_holds_heads_as_they_are(tmp_path: Path) -> None:
    chance = random.Random(3)
    packer = zstandard.ZstdCompressor(write_checksum=False)
    frames = [
        packer.compress(record(http(chance.randbytes(200_000)), uri=b"http://example.test/%d" % n, number=n))
        for n in range(3)
    ]
    assert b"WARC/1.0\r\n" in frames[0]
    path = tmp_path / "x.warc.zst"
    path.write_bytes(frames[0][:100_000] + frames[0][100_100:] + frames[1] + frames[2])
    with Snapshot.open(path) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://example.test/1", "http://example.test/2"]
        assert snapshot.notes == ["x.warc.zst: offset 0: damaged compressed data"]


@pytest.mark.parametrize("name", ["x.warc", "x.warc.gz", "x.warc.zst"])
def test_a_damaged_first_record_hides_no_other(tmp_path: Path, name: str) -> None:
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    records = [pack(record(http(), uri=b"http://example.test/%d" % n, number=n)) for n in range(2)]
    (tmp_path / name).write_bytes(bytes(20) + records[0][20:] + records[1])
    with Snapshot.open(tmp_path / name) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://example.test/1"]
        assert len(snapshot.notes) == 1


def test_a_damaged_record_whose_site_has_states_hides_no_other(tmp_path: Path) -> None:
    digest = b"WARC-Block-Digest: sha256:" + b"0" * 64
    asked = b"POST /add HTTP/1.1\r\nHost: example.test\r\nCookie: a=1\r\n\r\nx=1"
    data = record(http(), number=1) + record(
        asked, kind=b"request", uri=b"http://example.test/add", number=2, fields=digest
    )
    data += record(http(b"added"), uri=b"http://example.test/add", number=3, fields=digest)
    (tmp_path / "x.warc").write_bytes(data)
    with Snapshot.open(tmp_path / "x.warc") as snapshot:
        page, added = sorted(snapshot.captures(), key=lambda c: c.offset)
        assert snapshot.read(page).body == PAGE
        with pytest.raises(DamagedInput, match=r"x\.warc: the record at offset \d+ is damaged"):
            snapshot.read(added)
