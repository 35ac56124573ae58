"""Less frequent garbage collection while many long-lived objects are built.

Each collection goes over all of them, and finds almost nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 100_000  # new objects that trigger a collection


@contextmanager
def rare_collection() -> Iterator[None]:
    """Collect garbage less often in this process inside the block."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
