"""Sort long lists in steps that let other threads of the interpreter go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T", bytes, str, tuple[str, str])

RUN = 1 << 12  # values; no other thread runs while `sorted` works: 2 ms for these, 50 ms for 66,000 pairs


def in_order(values: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """Return `sorted(values, key=key)`, a long list by merging sorted runs."""
    listed = list(values)
    if len(listed) <= RUN:
        return sorted(listed, key=key)
    runs = (sorted(listed[at : at + RUN], key=key) for at in range(0, len(listed), RUN))
    return list(merge(*runs, key=key))
