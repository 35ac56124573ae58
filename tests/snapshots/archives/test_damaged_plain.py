"""Records that no gzip member guards: a block that is not the one its digest tells is never given out."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from snapshots.archives.digests import Proof
from snapshots.errors import DamagedInput
from snapshots.snapshot import Snapshot

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
