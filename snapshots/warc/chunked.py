"""Decoder for chunked bodies (RFC 9112, 7.1), which some archives store undecoded and malformed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE = 64  # bytes within which a chunk's header line must end
TRAILERS = 1 << 16  # maximum bytes of trailers

_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r\n)+(?:\r\n)?")


def dechunk(body: bytes) -> bytes:
    """Decode a whole chunked body; see `dechunked`."""
    return b"".join(dechunked([body]))


def dechunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a body without chunk headers and trailers, with at most one chunk in memory.

    From the first malformed chunk on, all bytes are passed through, except two bytes where a line
    break is missing. The output equals warcio's, which leaves trailers in, to the byte.
    """
    body = _Ahead(pieces)
    while True:
        lead = body.peek(LINE)
        line = lead[: lead.find(b"\n") + 1 or LINE]
        size = _chunk_size(line)
        if size < 0:
            break
        start = len(line)
        if size == 0:
            tail = body.peek(start + TRAILERS)[start:]
            if tail.startswith(b"\r\n") or (len(tail) < TRAILERS and _TRAILERS.fullmatch(tail)):
                return
            body.skip(start + 2)
            yield line
            break
        chunk = body.peek(start + size + 2)
        data, terminator = chunk[start : start + size], chunk[start + size :]
        if len(data) == size and terminator != b"\r\n":
            body.skip(start + size + 2)
            yield line + data
            break
        yield data
        if len(data) < size:
            return
        body.skip(start + size + 2)
    yield from body.rest()


class _Ahead:
    """A look-ahead buffer over an iterator of bytes."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._here = b""
        self._at = 0

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, or fewer at the end, without consuming them."""
        missing = count - (len(self._here) - self._at)
        if missing > 0:
            parts = [self._here[self._at :]]
            while missing > 0 and (piece := next(self._pieces, None)) is not None:
                parts.append(piece)
                missing -= len(piece)
            self._here, self._at = b"".join(parts), 0
        return self._here[self._at : self._at + count]

    def skip(self, count: int) -> None:
        """Consume `count` bytes that `peek` has returned."""
        self._at += count

    def rest(self) -> Iterator[bytes]:
        yield self._here[self._at :]
        yield from self._pieces


def _chunk_size(line: bytes) -> int:
    if not line.endswith(b"\r\n"):
        return -1
    digits = line[:-2].split(b";")[0].strip()
    try:
        size = int(digits, 16)
    except ValueError:
        return -1
    return size if 0 <= size <= 1 << 31 else -1
