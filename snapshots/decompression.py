"""Streaming decompression into parts of bounded size, with a limit on the total.

All compressed data goes through here: content codings, WARC records, zip members, indexes and options. 495
bytes may unpack to 2.4 GB, so nothing is unpacked at once unless its size is known to be small.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from isal import isal_zlib

from stillweb.snapshots.errors import DamagedInput

GZIP, ZLIB, DEFLATE = 31, 15, -15  # wbits: deflate in a gzip wrapper, in a zlib wrapper, bare
MOST = 1 << 28  # most bytes that a streamed body, record or file may unpack to
IN_MEMORY = 1 << 26  # the same for data held in memory
PART = 1 << 20  # most bytes yielded at a time
_BROTLI_STEP = 32  # bytes fed at a time, as brotli can't limit its output: 8 bytes can unpack to 16 MB
_DICTIONARY_MAGIC = b"\x37\xa4\x30\xec"  # RFC 8878, 5; a dictionary without it is mere content


class TooLarge(DamagedInput):
    """Data that unpacks to more than the limit under which it is read."""


def too_large(what: str, most: int) -> str:
    """Return the message for data that unpacks to more than `most` bytes."""
    return f"{what} unpacks to more than {most >> 20} MB"


class Stream:
    """A decompressor of one member.

    `feed` yields the unpacked data of a piece, or raises ValueError. `eof` is True at the end of the member;
    `rest` then holds the bytes fed beyond it.
    """

    eof = False
    rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the unpacked data of the piece, in parts."""
        raise NotImplementedError


class Inflate(Stream):
    """A deflate stream, with zlib or, for speed, isal_zlib as `library`. `wbits` names its wrapper."""

    def __init__(self, wbits: int, library: ModuleType = zlib) -> None:
        self._z = library.decompressobj(wbits)
        self._error: type[Exception] = library.error

    def feed(self, piece: bytes) -> Iterator[bytes]:
        z = self._z
        try:
            while piece and not z.eof:
                data: bytes = z.decompress(piece, PART)
                piece = z.unconsumed_tail
                if data:
                    yield data
                elif not piece:
                    break
            # after a full part, zlib may hold back output although its input is used up
            while not z.eof and (data := z.decompress(b"", PART)):
                yield data
        except self._error as error:
            raise ValueError(str(error)) from error
        if z.eof:
            self.eof = True
            self.rest = z.unused_data


def zstd_library() -> ModuleType:
    """Import the standard library's compression.zstd, or its back-port before Python 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


class Zstd(Stream):
    """A Zstandard frame. Raises ValueError if the dictionary is damaged."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        zstd = zstd_library()
        self._error: type[Exception] = zstd.ZstdError
        try:
            loaded = dictionary and zstd.ZstdDict(dictionary, is_raw=dictionary[:4] != _DICTIONARY_MAGIC)
            self._z = zstd.ZstdDecompressor(loaded or None)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error

    def feed(self, piece: bytes) -> Iterator[bytes]:
        z = self._z
        try:
            while piece or not z.needs_input:
                data: bytes = z.decompress(piece, PART)
                piece = b""
                if data:
                    yield data
                if z.eof:
                    self.eof = True
                    self.rest = z.unused_data
                    return
        except self._error as error:
            raise ValueError(str(error)) from error


class Brotli(Stream):
    """A brotli stream; no data may follow it."""

    def __init__(self) -> None:
        import brotli

        self._error = brotli.error
        self._z = brotli.Decompressor()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        for at in range(0, len(piece), _BROTLI_STEP):
            try:
                data = self._z.process(piece[at : at + _BROTLI_STEP])
            except self._error as error:
                raise ValueError(str(error)) from error
            yield from _parts(data)
        self.eof = self._z.is_finished()


def _parts(data: bytes) -> Iterator[bytes]:
    if len(data) <= PART:
        if data:
            yield data
        return
    for at in range(0, len(data), PART):
        yield data[at : at + PART]


def bounded_parts(parts: Iterable[bytes], most: int, refusal: Callable[[], Exception]) -> Iterator[bytes]:
    """Yield the parts; raise `refusal()` as soon as their total exceeds `most` bytes."""
    have = 0
    for part in parts:
        have += len(part)
        if have > most:
            raise refusal()
        yield part


def inflate(data: bytes, wbits: int, what: str, most: int = IN_MEMORY) -> bytes:
    """Return the unpacked data of one deflated member.

    Raises ValueError, and TooLarge, whose message names `what`.
    """
    stream = Inflate(wbits, isal_zlib)
    parts = bounded_parts(stream.feed(data), most, lambda: TooLarge(too_large(what, most)))
    return b"".join(parts)
