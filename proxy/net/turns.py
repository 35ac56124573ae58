"""How connections that share an event loop take turns: for how long, and where HTTP/2 and web sockets can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator

TURN = 0.005  # seconds in which what came at once on a connection is handled before others have theirs
PREFACE = 24  # bytes with which a client of HTTP/2 begins (RFC 9113, 3.4)
LONGEST_HEAD = 14  # bytes, of a web socket's frame

FrameSize = Callable[[bytes], int]  # bytes of a whole frame by how it begins; 0 if more of it must be known


def http2_size(start: bytes) -> int:
    """Return the size of an HTTP/2 frame (RFC 9113, 4.1)."""
    return 9 + int.from_bytes(start[:3]) if len(start) >= 3 else 0


def websocket_size(start: bytes) -> int:
    """Return the size of a web socket's frame (RFC 6455, 5.2)."""
    if len(start) < 2:
        return 0
    length = start[1] & 0x7F
    longer = {126: 2, 127: 8}.get(length, 0)
    if len(start) < 2 + longer:
        return 0
    mask = 4 if start[1] & 0x80 else 0
    return 2 + longer + mask + (int.from_bytes(start[2 : 2 + longer]) if longer else length)


class Frames:
    """Cuts the bytes of a connection at the ends of frames. The first frame follows `preface` bytes."""

    def __init__(self, size: FrameSize, preface: int = 0) -> None:
        self._size = size
        self._rest = preface  # bytes missing of the current frame
        self._head = b""  # of a frame whose size is not known yet

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes, cut."""
        at = 0
        while at < len(data):
            begun = at
            if not self._rest:
                head = self._head + data[at : at + LONGEST_HEAD]
                self._rest = self._size(head)
                if not self._rest:
                    self._head = head
                    yield data[at:]
                    return
                self._rest -= len(self._head)
                self._head = b""
            at = min(len(data), begun + self._rest)
            self._rest -= at - begun
            yield data[begun:at]
