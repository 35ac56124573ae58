"""CPU time of a part of a test: what other tests left in memory is not looked through for garbage meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """Adds what was spent within to the list. A look through a worker's memory at the end of a run takes half a second."""
    spent: list[float] = []
    collected = gc.isenabled()
    gc.disable()
    start = time.process_time()
    try:
        yield spent
    finally:
        spent.append(time.process_time() - start)
        if collected:
            gc.enable()
