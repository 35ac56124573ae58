"""Less looking for garbage while much is made that is kept: each look goes over all of it, and finds next to nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 100_000  # more of them than before, and it is looked


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Looks for garbage seldom, in this process, until it is left."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
