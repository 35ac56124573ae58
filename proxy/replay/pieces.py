"""Bodies that are read piece by piece, as they may be too large for memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stillweb.snapshots.http import encodings

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture, Response
    from stillweb.snapshots.snapshot import Snapshot

PIECE = 1 << 17  # bytes read at a time


def read_head(snapshot: Snapshot, capture: Capture) -> tuple[Response, int]:
    """Return a capture's response without its body, and the number of bytes stored of the body."""
    stored = snapshot.head(capture)
    length = stored.header("content-length") or ""
    if length.isdigit():
        return stored, int(length)
    return stored, sum(len(p) for p in stored_pieces(snapshot, capture, None))


def stored_pieces(snapshot: Snapshot, capture: Capture, encoding: str | None) -> Iterator[bytes]:
    """Yield a capture's body, decoded from `encoding` if given. Raises encodings.EncodingProblem."""
    with snapshot.open_body(capture) as file:
        yield from encodings.decode_pieces(iter(lambda: file.read(PIECE), b""), encoding)


def cut(pieces: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a stream from `start` up to `stop` (-1: to the end)."""
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), len(piece) if stop < 0 else min(stop - at, len(piece))
        if first < last:
            yield piece[first:last]
        at += len(piece)
        if 0 <= stop <= at:
            return
