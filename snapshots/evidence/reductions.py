"""Reductions: from the events of a session that decide an answer to the state that they leave behind.

Each reduction forgets something; `sequence` forgets nothing. States are 64-bit numbers, so that a state of a thousand events costs no
more than one of three. A reducer is fed event by event and can be carried on while a session goes on.
"""

from __future__ import annotations

from stillweb.snapshots.evidence.events import Event
from stillweb.snapshots.identity.keys import mix

_MASK = (1 << 64) - 1


def _chain(state: int, value: int) -> int:
    """Return the number of `state` followed by `value`; the order counts."""
    return ((state ^ value) * 0x9E3779B97F4A7C15 + (state >> 29) + 1) & _MASK


class Reducer:
    """The state that the events so far leave behind. `trust` is the chance that the answers are right on which it depends."""

    __slots__ = ("state", "trust")

    def __init__(self) -> None:
        self.state = 0
        self.trust = 1.0

    def add(self, event: Event) -> None:
        """Let `event` happen."""
        raise NotImplementedError


class Last(Reducer):
    """The last event alone: a filter, a login, a chosen language."""

    def add(self, event: Event) -> None:
        self.state = event.done


class Outcome(Reducer):
    """The last event and how it was answered: a switch that one request turns on and off."""

    def add(self, event: Event) -> None:
        self.state, self.trust = _chain(event.done, event.said), event.trust


class _Parts(Reducer):
    """The sum of what was said of each part; what is said again of a part replaces what was said before."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[object, int] = {}

    def put(self, part: object, value: int) -> None:
        """Replace what was said of `part`."""
        self.state = (self.state - self.parts.get(part, 0) + value) & _MASK
        self.parts[part] = value

    def clear(self) -> None:
        """Forget all parts."""
        self.parts.clear()
        self.state = 0


class LastOfEach(_Parts):
    """The last event of each type: two filters that hold at once."""

    def add(self, event: Event) -> None:
        self.put(event.type, event.done)


class OutcomeOfEach(_Parts):
    """The last answer to each request."""

    def add(self, event: Event) -> None:
        self.put(event.done, _chain(event.done, event.said))
        self.trust = min(self.trust, event.trust)


class Sequence(Reducer):
    """All events in their order."""

    def add(self, event: Event) -> None:
        self.state = _chain(self.state, event.done)


class Bag(Reducer):
    """The number of times that each event happened: a counter, a basket."""

    def add(self, event: Event) -> None:
        self.state = (self.state + _chain(event.done, 1)) & _MASK


class BagSinceReset(Reducer):
    """A bag since the last event without parameters: a basket that is emptied."""

    def add(self, event: Event) -> None:
        base = 0 if not event.parameters else self.state
        self.state = (base + _chain(event.done, 1)) & _MASK


class Set(_Parts):
    """The events that happened at all: flags, pages that were seen."""

    def add(self, event: Event) -> None:
        self.put(event.done, event.done)


class MostRecentFirst(Reducer):
    """Events by when they happened last: a list of what was seen."""

    __slots__ = ("recent",)

    def __init__(self) -> None:
        super().__init__()
        self.recent: dict[int, None] = {}

    def add(self, event: Event) -> None:
        self.recent.pop(event.done, None)
        self.recent[event.done] = None
        self.state = mix(*self.recent)


class Shown(Reducer):
    """The last page that was shown, and the writes since: a page that shows all of a state tells it, whatever led there."""

    def add(self, event: Event) -> None:
        self.state = _chain(event.done, event.said) if event.safe else _chain(self.state, event.done)


class Switch(Reducer):
    """The events that happened an odd number of times: likes, folds, stars."""

    def add(self, event: Event) -> None:
        self.state ^= event.done


class Toggle(_Parts):
    """The last type said of each thing (add and remove, PUT and DELETE); an event without parameters resets."""

    def add(self, event: Event) -> None:
        if event.parameters:
            self.put(event.parameters, mix(event.parameters, event.type))
        else:
            self.clear()


REDUCERS: dict[str, type[Reducer]] = {
    "last": Last,
    "last of each": LastOfEach,
    "sequence": Sequence,
    "bag": Bag,
    "set": Set,
    "toggle": Toggle,
    "bag since reset": BagSinceReset,
    "most recent first": MostRecentFirst,
    "switch": Switch,
    "shown": Shown,
    "outcome": Outcome,
    "outcome of each": OutcomeOfEach,
}
