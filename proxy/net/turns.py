"""How connections that share an event loop take turns: for how long, and where HTTP/2 can be cut."""

from __future__ import annotations

from collections.abc import Iterator

TURN = 0.005  # seconds in which what came at once on a connection is handled before others have theirs
PREFACE = 24  # bytes with which a client begins (RFC 9113, 3.4)
FRAME_HEAD = 9  # bytes; the first three hold the payload's length (4.1)


class Frames:
    """Cut what comes on an HTTP/2 connection at the ends of frames; the first ends behind `preface` bytes."""

    def __init__(self, preface: int) -> None:
        self._rest = preface  # bytes missing of the current frame
        self._head = b""

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes, cut. Keep an incomplete frame head for the next call."""
        data, self._head = self._head + data, b""
        at = 0
        while at < len(data):
            if not self._rest:
                if len(data) - at < FRAME_HEAD:
                    self._head = data[at:]
                    return
                self._rest = FRAME_HEAD + int.from_bytes(data[at : at + 3])
            end = min(len(data), at + self._rest)
            self._rest -= end - at
            yield data[at:end]
            at = end
