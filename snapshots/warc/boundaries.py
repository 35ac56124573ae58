"""Record boundaries: the next record after damage, in mid-file, or after a record without length."""

from __future__ import annotations

from stillweb.snapshots._os.random_access import Place, chunks
from stillweb.snapshots.warc import warc

PIECE = 1 << 15  # bytes searched at a time
_PACKED = b"\x1f\x8b\x08", warc.ZSTD_MAGIC
_PLAIN = (b"WARC/1.",)


def next_plain(place: Place, at: int, mark: bytes) -> int:
    """Return the offset of the next plain record after `at`, or the end of the file.

    A candidate is a line that begins with `mark` (which includes the line break before it).
    """
    carried = b""
    for piece in chunks(place, at):
        data = carried + piece
        here = at - len(carried)
        found = data.find(mark)
        while found >= 0:
            if warc.starts_record(place.read(here + found + 1, 1 << 13)):
                return here + found + 1
            found = data.find(mark, found + 1)
        carried = data[-6:]
        at += len(piece)
    return place.size


def boundary_after(place: Place, at: int) -> int | None:
    """Return the offset of the first record at or after `at`, or None.

    Only gzip members and Zstandard frames are searched in a compressed file, and only plain records in any
    other: poorly compressed data may contain WARC heads verbatim, and the body of a plain record may be a
    gzip file.
    """
    marks = _PACKED if is_packed(place) else _PLAIN
    carried = b""
    for piece in chunks(place, at, size=PIECE):
        data = carried + piece
        base = at - len(carried)
        found = -1
        while True:
            found = min((m for mark in marks if (m := data.find(mark, found + 1)) >= 0), default=-1)
            if found < 0:
                break
            if is_boundary(place, base + found):
                return base + found
        carried = data[-8:]
        at += len(piece)
    return None


def is_packed(place: Place) -> bool:
    """Return True if the records of a file are gzip members or Zstandard frames.

    If the first bytes are damaged, the first intact record decides.
    """
    lead = place.read(0, 8)
    if warc.is_member(lead) or lead[1:4] == b"\x2a\x4d\x18":
        return True
    if warc.starts_record(place.read(0, 1 << 13).lstrip(b"\r\n\0")):
        return False
    at = 0
    for piece in chunks(place, 0, size=PIECE):
        for mark in _PACKED:
            found = piece.find(mark)
            while found >= 0:
                if is_boundary(place, at + found):
                    return True
                found = piece.find(mark, found + 1)
        if b"\nWARC/1." in piece:
            return False
        at += len(piece)
    return False


def is_boundary(place: Place, at: int) -> bool:
    """Return True if a record starts at offset `at`."""
    piece = place.read(at, PIECE)
    unpacker = warc.decompressor(piece[:4], place)
    if unpacker is None:
        return warc.starts_record(piece)
    try:
        return warc.starts_record(warc.first_part(unpacker, piece))
    except ValueError:
        return False
