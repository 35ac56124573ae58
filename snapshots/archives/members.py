"""Records as gzip members that tell their length and where their heads end, so that bodies can be passed over.

Two subfields of the extra field in the gzip header (RFC 1952, 2.3.1.1), which others pass over; numbers are of four
bytes, the least first:
- `sl`, skip lengths, of the WARC 0.9 draft, as wget writes it: bytes of the member, bytes of what it unpacks to;
- `SW`: bytes of the member up to where the record's heads (WARC and HTTP) end and what is unpacked so far is whole,
  CRC-32 of the member's bytes after its gzip header.
By that checksum damage anywhere in a body is seen without unpacking it. All zero: not told (of 4 GiB and more).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO

from isal import isal_zlib

from stillweb.snapshots.machine.places import Place, chunks

LEVEL = 2
RAW = -15  # wbits: deflate alone
BODY = 1 << 10  # bytes of a body from which it pays to pass over it
MAX_HEADS = 1 << 20  # unpacked
LIMIT = 1 << 32
_HEADER = struct.Struct("<10sH2sHII2sHII")
_START = _HEADER.pack(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff", 24, b"sl", 8, 0, 0, b"SW", 8, 0, 0)[:16]
_NUMBERS = struct.Struct("<II4sII")  # from there on
_OURS = b"SW\x08\0"
_TRAILER = 8  # bytes
GZIP_START = b"\x1f\x8b\x08"  # how a member begins
GZIP_HEAD = 10  # bytes at least
GZIP_UNDATED = GZIP_START + bytes(5)  # one whose header tells no name nor time
_SUMS = struct.Struct("<II")  # CRC-32 and length of what is unpacked, modulo 2**32
MAX_WHOLE = 1 << 20  # unpacked bytes of a member from which it is read piece by piece

# what a member holds, or its heads; its stored length; that of all it holds
Unpacked = tuple[bytes, int, int]


class _Packing:
    """A member that is made in pieces."""

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
        """What was added so far can be unpacked alone."""
        data = self._out(self._z.flush(isal_zlib.Z_SYNC_FLUSH))
        self._heads = self._length
        return data

    def end(self) -> bytes:
        data = self._z.flush()
        if self._heads == _HEADER.size:
            self._heads = self._length + len(data)
        return self._out(data + _SUMS.pack(self._crc, self._unpacked % LIMIT))

    def header(self) -> bytes:
        """The gzip header, once all is there."""
        told = self._length, self._unpacked, self._heads, self._stored
        length, unpacked, heads, stored = told if max(told) < LIMIT else (0, 0, 0, 0)
        return _START + _NUMBERS.pack(length, unpacked, _OURS, heads, stored)


def pack(head: bytes, block: bytes, lead: int | None = None) -> bytes:
    """A record as a member; `lead` is how many bytes of the block belong to the heads, None for all of it."""
    made = _Packing()
    if lead is None or len(block) - lead < BODY:
        packed = made.add(head + block + b"\r\n\r\n")
    else:
        packed = made.add(head + block[:lead]) + made.end_heads()
        packed += made.add(memoryview(block)[lead:]) + made.add(b"\r\n\r\n")
    packed += made.end()
    return made.header() + packed


def pack_file(out: BinaryIO, heads: bytes, body: Iterable[bytes]) -> None:
    """Writes a record into an empty file as a member; `heads` are those of the record and of its block."""
    made = _Packing()
    out.write(bytes(_HEADER.size))
    out.write(made.add(heads) + made.end_heads())
    for piece in body:
        out.write(made.add(piece))
    out.write(made.add(b"\r\n\r\n") + made.end())
    out.seek(0)
    out.write(made.header())
    out.seek(0, 2)


def heads_of(place: Place, buffer: bytes, base: int, at: int) -> Unpacked | None:
    """The heads of a member of ours at an offset, or all that it holds where that is little beside them.

    `buffer` holds what stands at `base` and after it. None where anything isn't as it was written: then the member
    has to be unpacked to know what it holds.
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
        # for so little, zlib is the quickest: it makes smaller tables
        data = zlib.decompressobj(RAW).decompress(buffer[start : here + heads], MAX_HEADS)
    except zlib.error:
        return None
    if (len(data) != unpacked) if whole else (len(data) >= min(MAX_HEADS, unpacked)):
        return None
    return data, length, unpacked
