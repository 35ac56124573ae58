"""Where to look in a large index: the urlkey at every so many bytes of it, in `indexes/steps.txt`.

The first line is the step in bytes; line n after it is the key of the first line of the index that starts at byte
(n - 1) * step or later, `\\xff` where none does. It is made of the index, spares most of a bisection, and is never
believed: what is read with its help shows whether it was the place, and else the index is searched without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from snapshots.machine.places import Place

MOST = 1 << 19  # keys, some 50 MB: a larger index has longer steps
LEAST = 1 << 20  # bytes of an index that is worth it
STEP = 1 << 12
LAST = b"\xff"  # beyond all keys


@dataclass(frozen=True, slots=True)
class Steps:
    """The keys at each step of an index."""

    step: int
    keys: list[bytes]

    def around(self, key: bytes) -> int:
        """Where lines of a key may first start, so that they do within a step; a multiple of the step."""
        return max(0, bisect_left(self.keys, key) - 1) * self.step


def step_for(size: int) -> int:
    """The step for an index of so many bytes, 0 for one that needs none."""
    if size < LEAST:
        return 0
    step = STEP
    while size > step * MOST:
        step *= 2
    return step


def steps_of(size: int, key_at: Callable[[int], bytes]) -> bytes:
    """The file for an index of that size, b"" if it needs none; `key_at` gives the key of the first line from there on."""
    step = step_for(size)
    if not step:
        return b""
    return b"\n".join([b"%d" % step, *map(key_at, range(0, size, step)), b""])


def open_steps(place: Place | None, size: int) -> Steps | None:
    """The steps for an index of that size, if there is a file and it is for one."""
    if place is None:
        return None
    first, *keys = place.read(0, place.size).split(b"\n")
    step = step_for(size)
    if not step or first != b"%d" % step or len(keys) != (size + step - 1) // step + 1:
        return None
    keys[-1] = LAST
    return Steps(step, keys)
