"""Reductions: from the events of a session that decide an answer to the state that they leave behind.

Each reduction forgets something; `sequence` forgets nothing. States are 64-bit numbers, so that a state of a thousand events costs no
more than one of three. A reducer is fed event by event and can be carried on while a session goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stillweb.snapshots.evidence.events import MASK, Event
from stillweb.snapshots.identity.keys import mix


def _chain(state: int, value: int) -> int:
    """Return the number of `state` followed by `value`; the order counts."""
    return ((state ^ value) * 0x9E3779B97F4A7C15 + (state >> 29) + 1) & MASK


def _done(event: Event) -> int:
    return event.done


def _outcome(event: Event) -> int:
    return _chain(event.done, event.answer)


class Steps:
    """A state that each event makes of the one before it. `heard`: one that only reads tells it, as surely as it was answered."""

    __slots__ = ("_heard", "_step", "state", "trust")

    def __init__(self, step: Callable[[int, Event], int], *, heard: bool = False) -> None:
        self._step, self._heard, self.state, self.trust = step, heard, 0, 1.0

    def __len__(self) -> int:
        return 0

    def add(self, event: Event) -> None:
        """Let `event` happen."""
        self.state = self._step(self.state, event)
        if self._heard and event.safe:
            self.trust = event.trust


class Slots:
    """The sum of what was last said of each thing. `resets`: an event without parameters clears all of them.

    A thing is one of those that `of` tells apart; a state of what was `heard` is as sure as the answers.
    """

    __slots__ = ("_heard", "_of", "_resets", "_said", "_slots", "state", "trust")

    def __init__(
        self,
        of: Callable[[Event], object],
        answer_of: Callable[[Event], int] = _done,
        *,
        heard: bool = False,
        resets: bool = False,
    ) -> None:
        self._of, self._said, self._heard, self._resets = of, answer_of, heard, resets
        self._slots: dict[object, int] = {}
        self.state, self.trust = 0, 1.0

    def __copy__(self) -> Slots:
        other = Slots(self._of, self._said, heard=self._heard, resets=self._resets)
        other._slots, other.state, other.trust = self._slots.copy(), self.state, self.trust
        return other

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, event: Event) -> None:
        """Let `event` happen."""
        if self._resets and not event.parameters:
            self._slots.clear()
            self.state = 0
            return
        thing, value, slots = self._of(event), self._said(event), self._slots
        self.state = (self.state - slots.get(thing, 0) + value) & MASK
        slots[thing] = value
        if self._heard:
            self.trust = event.trust if len(slots) == 1 else min(self.trust, event.trust)


class MostRecentFirst:
    """The events, ordered by their last occurrence: a list of recently viewed things."""

    __slots__ = ("_recent", "state", "trust")

    def __init__(self) -> None:
        self._recent: dict[int, None] = {}
        self.state, self.trust = 0, 1.0

    def __copy__(self) -> MostRecentFirst:
        other = MostRecentFirst()
        other._recent, other.state = self._recent.copy(), self.state
        return other

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, event: Event) -> None:
        """Let `event` happen."""
        self._recent.pop(event.done, None)
        self._recent[event.done] = None
        self.state = mix(*self._recent)


def _bag(state: int, event: Event) -> int:
    return (state + _chain(event.done, 1)) & MASK


# Each has `state`, which the events so far leave behind, `trust`, the chance that the answers are right on which that depends, and
# as its length the number of things that it keeps
Reducer = Steps | Slots | MostRecentFirst
REDUCERS: dict[str, Callable[[], Reducer]] = {
    # the last event alone: a filter, a login, a chosen language
    "last": partial(Steps, lambda _, e: e.done),
    # two filters that hold at once
    "last of each": partial(Slots, lambda e: e.type),
    # all events in their order
    "sequence": partial(Steps, lambda state, e: _chain(state, e.done)),
    # how often each event happened: a counter, a basket
    "bag": partial(Steps, _bag),
    # how many events happened, whatever they said: a number that is given out, a limit
    "count": partial(Steps, lambda state, _: state + 1),
    # the events that happened at all: flags, pages that were seen
    "set": partial(Slots, _done),
    # the last type said of each thing: add and remove, PUT and DELETE
    "toggle": partial(Slots, lambda e: e.parameters, lambda e: mix(e.parameters, e.type), resets=True),
    # a basket that an event without parameters empties
    "bag since reset": partial(Steps, lambda state, e: _bag(state if e.parameters else 0, e)),
    "most recent first": MostRecentFirst,
    # the events that happened an odd number of times: likes, folds, stars
    "switch": partial(Steps, lambda state, e: state ^ e.done),
    # the last page that was shown, and the writes since: such a page shows the whole state
    "shown": partial(Steps, lambda state, e: _outcome(e) if e.safe else _chain(state, e.done), heard=True),
    # the last event and how it was answered: a switch that one request turns on and off
    "outcome": partial(Slots, lambda _: None, _outcome, heard=True),
    # the last answer to each request
    "outcome of each": partial(Slots, _done, _outcome, heard=True),
}
BY_ANSWERS = ("shown", "outcome", "outcome of each")  # those that depend on what events were answered
