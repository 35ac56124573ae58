"""Gzip members that store their length and the end of the record's heads, so that readers can skip bodies.

The gzip header has two subfields in its extra field (RFC 1952, 2.3.1.1), which other readers ignore.
Numbers have four bytes, little-endian:
- `sl`, skip lengths, from the WARC 0.9 draft, as wget writes it: bytes of the member, bytes uncompressed;
- `SW`: bytes of the member up to the end of the record's heads (WARC and HTTP), where the output is
  flushed, and the CRC-32 of the member's bytes after its gzip header.
The checksum detects damage anywhere in a body without decompressing it. All zero: not stored (4 GiB and
more).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO

from isal import isal_zlib

from stillweb.snapshots._os.random_access import ByteSource, chunks

LEVEL = 2
RAW = -15  # wbits: bare deflate
BODY = 1 << 10  # bytes from which a body is worth skipping
MAX_HEADS = 1 << 20  # uncompressed bytes
LIMIT = 1 << 32
_HEADER = struct.Struct("<10sH2sHII2sHII")
_START = _HEADER.pack(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff", 24, b"sl", 8, 0, 0, b"SW", 8, 0, 0)[:16]
_NUMBERS = struct.Struct("<II4sII")  # the rest of the header, after _START
_OURS = b"SW\x08\0"
_TRAILER = 8  # bytes of CRC-32 and length
GZIP_START = b"\x1f\x8b\x08"  # how a member begins
GZIP_HEAD = 10  # minimum length in bytes
GZIP_UNDATED = GZIP_START + bytes(5)  # a header without file name and time
_SUMS = struct.Struct("<II")  # CRC-32 and length of the uncompressed bytes, modulo 2**32
MAX_WHOLE = 1 << 20  # uncompressed bytes from which a member is read piece by piece

# the uncompressed member or only its heads; its stored length; its full uncompressed length
Unpacked = tuple[bytes, int, int]


class _Packing:
    """A gzip member under construction."""

    def __init__(self) -> None:
        self._z = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, RAW)
        self._unpacked = self._crc = self._stored = 0
        self._length = self._heads = _HEADER.size

    def _out(self, data: bytes) -> bytes:
        self._length += len(data)
        self._stored = isal_zlib.crc32(data, self._stored)
        return data

    def add(self, data: bytes | memoryview) -> bytes:
        self._unpacked += len(data)
        self._crc = isal_zlib.crc32(data, self._crc)
        return self._out(self._z.compress(data))

    def end_heads(self) -> bytes:
        """Flush, so that everything added so far can be decompressed on its own."""
        data = self._out(self._z.flush(isal_zlib.Z_SYNC_FLUSH))
        self._heads = self._length
        return data

    def end(self) -> bytes:
        data = self._z.flush()
        if self._heads == _HEADER.size:
            self._heads = self._length + len(data)
        return self._out(data + _SUMS.pack(self._crc, self._unpacked % LIMIT))

    def header(self) -> bytes:
        """Return the gzip header, once all data was added."""
        told = self._length, self._unpacked, self._heads, self._stored
        length, unpacked, heads, stored = told if max(told) < LIMIT else (0, 0, 0, 0)
        return _START + _NUMBERS.pack(length, unpacked, _OURS, heads, stored)


def pack(head: bytes, block: bytes, lead: int | None = None) -> bytes:
    """Return a record as a member. `lead` bytes of the block belong to the heads; None means all of them."""
    made = _Packing()
    if lead is None or len(block) - lead < BODY:
        packed = made.add(head + block + b"\r\n\r\n")
    else:
        packed = made.add(head + block[:lead]) + made.end_heads()
        packed += made.add(memoryview(block)[lead:]) + made.add(b"\r\n\r\n")
    packed += made.end()
    return made.header() + packed


def pack_file(out: BinaryIO, heads: bytes, body: Iterable[bytes]) -> None:
    """Write a record as a member into an empty file. `heads` are the WARC head and the HTTP head."""
    made = _Packing()
    out.write(bytes(_HEADER.size))
    out.write(made.add(heads) + made.end_heads())
    for piece in body:
        out.write(made.add(piece))
    out.write(made.add(b"\r\n\r\n") + made.end())
    out.seek(0)
    out.write(made.header())
    out.seek(0, 2)


def heads_of(place: ByteSource, buffer: bytes, base: int, at: int) -> Unpacked | None:
    """Return the heads of a member written by Stillweb, or its whole content if its body is small.

    `buffer` holds the file's bytes from offset `base` on. Returns None if anything differs from what
    Stillweb writes: the member must then be decompressed.
    """
    here = at - base
    if not buffer.startswith(_START, here) or len(buffer) < here + _HEADER.size:
        return None
    length, unpacked, name, heads, stored = _NUMBERS.unpack_from(buffer, here + len(_START))
    start, stop = here + _HEADER.size, here + length
    whole = heads == length - _TRAILER
    if name != _OURS or not _HEADER.size < heads <= length - _TRAILER:
        return None
    if base + stop > place.size or here + heads > len(buffer):
        return None
    if stop <= len(buffer):
        crc = isal_zlib.crc32(memoryview(buffer)[start:stop])
    else:
        crc = 0
        for piece in chunks(place, base + start, base + stop):
            crc = isal_zlib.crc32(piece, crc)
    if crc != stored:
        return None
    try:
        # zlib is the fastest for so little data: it builds smaller tables
        data = zlib.decompressobj(RAW).decompress(buffer[start : here + heads], MAX_HEADS)
    except zlib.error:
        return None
    if (len(data) != unpacked) if whole else (len(data) >= min(MAX_HEADS, unpacked)):
        return None
    return data, length, unpacked
