"""Where a record begins: behind damage, behind a place in the middle of a file, behind a plain record without length."""

from __future__ import annotations

from stillweb.snapshots.archives import warc
from stillweb.snapshots.machine.places import Place, chunks

PIECE = 1 << 15  # looked through at once
_PACKED = b"\x1f\x8b\x08", warc.ZSTD_MAGIC
_PLAIN = (b"WARC/1.",)


def next_plain(place: Place, at: int, mark: bytes) -> int:
    """Where the next plain record starts after `at`: where a line that begins with `mark` is one; else the end."""
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
    """Where the first record begins at or after `at`, None if none does.

    Members are looked for in a file that begins with one, and plain records in any other: what is packed badly holds heads
    as they are, and a body may be an archive.
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
    """Whether the records of a file are members or frames; where its first bytes are damaged, the first whole ones tell."""
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
    """Whether a record starts at this offset."""
    piece = place.read(at, PIECE)
    unpacker = warc.decompressor(piece[:4], place)
    if unpacker is None:
        return warc.starts_record(piece)
    try:
        return warc.starts_record(warc.first_part(unpacker, piece))
    except ValueError:
        return False
