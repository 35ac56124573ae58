"""What follows from exchanges of which some were under way at once: each counts in the order in which it was sent.

Which of them was answered first is chance, and another one in replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Sent(Protocol):
    """An exchange."""

    begin: int


E = TypeVar("E", bound=Sent)
T = TypeVar("T")


class InTurn(Generic[E, T]):
    """What is so from the `start`, `step` by step."""

    def __init__(self, start: T, step: Callable[[T, E], T]) -> None:
        self._step = step
        self._sent: list[E] = []
        self._after = [start]

    def add(self, exchange: E) -> T:
        """What is so after one more that is over, and all before it."""
        place = bisect_right(self._sent, exchange.begin, key=_begin)
        self._sent.insert(place, exchange)
        del self._after[place + 1 :]
        for one in self._sent[place:]:
            self._after.append(self._step(self._after[-1], one))
        return self._after[-1]


def _begin(exchange: Sent) -> int:
    return exchange.begin
