"""Block table of a large index: first key, offset and CRC-32 of each block of lines, in `indexes/steps.txt`.

The first line of the file is the step in bytes, the size of the index, and the CRC-32 of the lines after it. Each
block then has a line `urlkey offset crc32`: the key of the block's first line, twelve decimal digits and eight hex
digits. A block ends with the first line that is the last of its key and ends at least a step after the block's start.
So all lines of a key are found with one read, and that read is checked against the CRC-32: a flipped bit is found
when its block is used, even in an index that is too large to be checked as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from isal import isal_zlib

from stillweb.snapshots._os.random_access import ByteSource, FileSource, chunks
from stillweb.snapshots.errors import DamagedInput

MOST = 1 << 19  # blocks in a table, some 50 MB: a larger index has larger blocks
LEAST = 1 << 20  # bytes of the smallest index that gets a block table
STEP = 1 << 12
TOGETHER = 1 << 6  # blocks per read of a local file in a sequential scan
FAR = 1 << 10  # the same for a remote index, some 4 MB: each read is a round trip

_OFFSET = slice(-21, -9)
_CRC = slice(-8, None)


def step_for(size: int) -> int:
    """Return the step in bytes for an index of `size` bytes; 0 if it needs no block table."""
    if size < LEAST:
        return 0
    step = STEP
    while size > step * MOST:
        step *= 2
    return step


def steps_of(place: ByteSource) -> bytes:
    """Return the content of `steps.txt` for the index in `place`; b"" if it needs none."""
    step = step_for(place.size)
    if not step:
        return b""
    lines: list[bytes] = []
    begin, rest = 0, b""
    for piece in chunks(place):
        rest += piece
        at = 0
        while end := _end(rest, at + step):
            lines.append(_line(rest[at:end], begin + at))
            at = end
        begin, rest = begin + at, rest[at:]
    if rest:
        lines.append(_line(rest, begin))
    data = b"".join(lines)
    return b"%d %d %08x\n" % (step, place.size, isal_zlib.crc32(data)) + data


def _end(data: bytes, least: int) -> int:
    """Return the end of the first line that ends at or after `least` and before a line of another key.

    Return 0 if `data` doesn't show where that is.
    """
    end = data.find(b"\n", least - 1) + 1
    key = data[data.rfind(b"\n", 0, end - 1) + 1 : end].partition(b" ")[0] + b" "
    while end and data.startswith(key, end):
        end = data.find(b"\n", end) + 1
    return end if end and data.find(b"\n", end) >= 0 else 0  # the next line's key must be complete


def _line(block: bytes, offset: int) -> bytes:
    return b"%b %012d %08x\n" % (block.partition(b" ")[0], offset, isal_zlib.crc32(block))


def stamp_of(steps: bytes) -> dict[str, int]:
    """Return the size and CRC-32 of `steps.txt` as datapackage.json stores them."""
    return {"bytes": len(steps), "crc32": isal_zlib.crc32(steps)}


class Blocks:
    """Reader of an index by its block table; `lines` are those of `steps.txt` without the first."""

    def __init__(self, place: ByteSource, lines: list[bytes]) -> None:
        self._place = place
        self._lines = lines
        self._together = TOGETHER if isinstance(place, FileSource) else FAR

    def _start(self, number: int) -> int:
        return int(self._lines[number][_OFFSET]) if number < len(self._lines) else self._place.size

    def _read(self, first: int, last: int) -> bytes:
        """Return the bytes of blocks `first` to `last` (exclusive). Raises DamagedInput on a wrong CRC-32."""
        start = self._start(first)
        data = self._place.read(start, self._start(last) - start)
        if last - first == 1:
            if isal_zlib.crc32(data) != int(self._lines[first][_CRC], 16):
                raise self._damaged(start)
            return data
        view = memoryview(data)
        for number, (at, end) in enumerate(pairwise(map(self._start, range(first, last + 1))), first):
            if isal_zlib.crc32(view[at - start : end - start]) != int(self._lines[number][_CRC], 16):
                raise self._damaged(at)
        return data

    def _damaged(self, offset: int) -> DamagedInput:
        return DamagedInput(
            f"{self._place.name}: offset {offset}: a damaged block of the index; `stillweb import` makes a sound snapshot"
            " of the records"
        )

    def of_key(self, key: bytes) -> list[bytes]:
        """Return the index lines of `key`, in order. Raises DamagedInput."""
        wanted = key + b" "
        # the last block whose first key is `key` or sorts before it
        number = bisect_left(self._lines, wanted + b"\xff") - 1
        if number < 0:
            return []
        data = self._read(number, number + 1)
        at = 0 if data.startswith(wanted) else data.find(b"\n" + wanted) + 1
        found: list[bytes] = []
        while data.startswith(wanted, at):
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            found.append(data[at:end])
            at = end + 1
        return found

    def from_key(self, start: bytes = b"") -> Iterator[bytes]:
        """Yield the index lines from the first block that may hold lines beginning with `start`. Raises DamagedInput."""
        number, count = max(0, bisect_left(self._lines, start) - 1), 1
        while number < len(self._lines):
            last = min(number + count, len(self._lines))
            yield from self._read(number, last).removesuffix(b"\n").split(b"\n")
            number, count = last, min(2 * count, self._together)

    def sound(self) -> bool:
        """Return True if every block has its CRC-32."""
        try:
            for number in range(0, len(self._lines), self._together):
                self._read(number, min(number + self._together, len(self._lines)))
        except DamagedInput:
            return False
        return True


def open_blocks(steps: ByteSource | None, stamp: Any, place: ByteSource) -> Blocks | None:
    """Return the blocks of the index in `place`, or None if `steps` is missing, damaged or for another index.

    `stamp` is the entry of datapackage.json for the file (`stamp_of`), None if it has no entry.
    """
    if steps is None:
        return None
    data = steps.read(0, steps.size)
    if stamp is not None and stamp_of(data) != stamp:
        return None
    first, _, rest = data.partition(b"\n")
    if not rest or first != b"%d %d %08x" % (step_for(place.size), place.size, isal_zlib.crc32(rest)):
        return None
    return Blocks(place, rest.removesuffix(b"\n").split(b"\n"))
