"""How long tests wait. Each limit only ends a hang, so it is far above what the slowest machine needs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

HANG = 60.0  # seconds for what takes milliseconds: an answer on loopback, a thread's end, a line in a file
STARTS = 300.0  # seconds for what starts programs or browsers


def until(condition: Callable[[], object], seconds: float = HANG) -> bool:
    """Waits for a condition; whether it came true. To be asserted."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return bool(condition())  # this process may have been the one that was held up
        time.sleep(0.01)
    return True


def running(word: str) -> list[str]:
    """Return the numbers of the machine's processes with a text among their words."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in place.read_bytes():
                found.append(place.parent.name)
    return found
