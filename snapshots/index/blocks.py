"""A large index in blocks of whole lines: what each begins with, where, and its check sum, in `indexes/steps.txt`.

The first line is the step in bytes, the size of the index, and the CRC-32 of all that follows. Then a line a block,
`urlkey offset crc32`: the key of its first line, twelve digits and eight in hex. A block ends with the first line that
ends a step after its beginning or later and is the last one of its key. So the lines of a key are found with one read,
and what is read is held against its check sum: a bit that has turned over in an index too large to be looked at whole
is told by what stands on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from isal import isal_zlib

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.machine.places import FilePlace, Place, chunks

MOST = 1 << 19  # blocks, some 50 MB: a larger index has larger ones
LEAST = 1 << 20  # bytes of an index that is worth it
STEP = 1 << 12
TOGETHER = 1 << 6  # blocks read at once by who reads on
FAR = 1 << 10  # and of what is no file here, some 4 MB: each time is a round trip

_OFFSET = slice(-21, -9)
_CRC = slice(-8, None)


def step_for(size: int) -> int:
    """The step for an index of so many bytes, 0 for one that needs none."""
    if size < LEAST:
        return 0
    step = STEP
    while size > step * MOST:
        step *= 2
    return step


def steps_of(place: Place) -> bytes:
    """The file for an index, b"" if it needs none."""
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
    """Where the first line ends that does so at `least` or later and is followed by one of another key; 0: not in here."""
    end = data.find(b"\n", least - 1) + 1
    key = data[data.rfind(b"\n", 0, end - 1) + 1 : end].partition(b" ")[0] + b" "
    while end and data.startswith(key, end):
        end = data.find(b"\n", end) + 1
    return end if end and data.find(b"\n", end) >= 0 else 0  # the next line has to be here


def _line(block: bytes, offset: int) -> bytes:
    return b"%b %012d %08x\n" % (block.partition(b" ")[0], offset, isal_zlib.crc32(block))


def stamp_of(steps: bytes) -> dict[str, int]:
    """What datapackage.json says of the file."""
    return {"bytes": len(steps), "crc32": isal_zlib.crc32(steps)}


class Blocks:
    """The blocks of an index. `lines` are those of the file, without its first."""

    def __init__(self, place: Place, lines: list[bytes]) -> None:
        self._place = place
        self._lines = lines
        self._together = TOGETHER if isinstance(place, FilePlace) else FAR

    def _start(self, number: int) -> int:
        return int(self._lines[number][_OFFSET]) if number < len(self._lines) else self._place.size

    def _read(self, first: int, last: int) -> bytes:
        """The lines of blocks, one after the other, from one up to another. Raises DamagedInput."""
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
        """The lines of a key. Raises DamagedInput."""
        wanted = key + b" "
        # the last one that begins with it or before it
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
        """The lines from a block on in which some that begin with `start` may first be. Raises DamagedInput."""
        number, count = max(0, bisect_left(self._lines, start) - 1), 1
        while number < len(self._lines):
            last = min(number + count, len(self._lines))
            yield from self._read(number, last).removesuffix(b"\n").split(b"\n")
            number, count = last, min(2 * count, self._together)

    def sound(self) -> bool:
        """Whether all of them have their check sums."""
        try:
            for number in range(0, len(self._lines), self._together):
                self._read(number, min(number + self._together, len(self._lines)))
        except DamagedInput:
            return False
        return True


def open_blocks(steps: Place | None, stamp: Any, place: Place) -> Blocks | None:
    """The blocks of an index, if there is a file, it is whole, and it is for this one.

    `stamp` is what datapackage.json says of the file, None of one that it does not describe.
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
