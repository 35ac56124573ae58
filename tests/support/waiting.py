"""How long tests wait. Each limit only ends a hang, so it is far above what the slowest machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable

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
