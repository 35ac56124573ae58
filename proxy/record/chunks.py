"""A body in chunks (RFC 9112, 7.1) as browsers read it: extensions unread, lines that end in LF alone, odd trailers."""

from __future__ import annotations

import re
from typing import Any

import h11

from stillweb.proxy.record.heads import TOKEN

MOST_LINE = 1 << 14  # bytes of a line, as in Chromium
MOST_TRAILERS = 1 << 18

_SIZE = re.compile(rb"0*([0-9A-Fa-f]{1,15})")
_FIELD = re.compile(rb"(%b):[ \t]*([^\r\n\0]*?)[ \t]*" % TOKEN)


class Chunks:
    """A reader of bodies such as h11's. `found` are the trailers, once the end is told."""

    def __init__(self) -> None:
        self.found: tuple[tuple[bytes, bytes], ...] = ()
        self._left = 0  # of the chunk
        self._closing = False  # its data is here; the line end behind it is not
        self._trailers: list[tuple[bytes, bytes]] | None = None  # behind the last chunk
        self._size = 0  # of these
        self._over = False

    def __call__(self, buffer: Any) -> h11.Data | h11.EndOfMessage | None:
        """What the buffer holds: all data that is there, then the end. Raises h11.RemoteProtocolError."""
        data = bytes(buffer.maybe_extract_at_most(len(buffer)) or b"")
        parts: list[bytes] = []
        at = 0
        while not self._over and at < len(data):
            if self._left:
                parts.append(data[at : at + self._left])
                at += len(parts[-1])
                self._left -= len(parts[-1])
                self._closing = not self._left
                continue
            end = data.find(b"\n", at)
            if (end if end >= 0 else len(data)) - at > MOST_LINE:
                raise h11.RemoteProtocolError("a line between its chunks is too long")
            if end < 0:
                break
            self._line(data[at:end].removesuffix(b"\r"))
            at = end + 1
        buffer += data[at:]
        if parts:
            return h11.Data(data=b"".join(parts))
        if not self._over:
            return None
        self.found = tuple(self._trailers or ())
        return h11.EndOfMessage()

    def read_eof(self) -> None:
        """See h11's readers."""
        raise h11.RemoteProtocolError(
            "peer closed connection without sending complete message body (incomplete chunked read)"
        )

    def _line(self, line: bytes) -> None:
        if self._closing:
            if line:
                raise h11.RemoteProtocolError("a chunk is longer than it says")
            self._closing = False
        elif self._trailers is not None:
            self._size += len(line)
            if self._size > MOST_TRAILERS:
                raise h11.RemoteProtocolError("its trailers are too long")
            self._over = not line
            if (field := _FIELD.fullmatch(line)) is not None:
                self._trailers.append((field[1], field[2]))
        else:
            size = _SIZE.fullmatch(line.partition(b";")[0].rstrip(b" \t"))
            if size is None:
                raise h11.RemoteProtocolError("a chunk does not say how long it is")
            self._left = int(size[1], 16)
            if not self._left:
                self._trailers = []
