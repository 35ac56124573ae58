"""Slots that a page's scripts write in the background, such as what they keep of a reader's habits: seen to matter to nothing
but what lies at their own address, above it or below it.

Whether such a write is over before the page asks for what else it needs is chance. So what was recorded elsewhere before one, or
after, is only presumed to be no answer after it, or before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from itertools import pairwise

from stillweb.snapshots.states.learning import Item, Model, Recording, contradictions
from stillweb.snapshots.states.slots import STRONG

TESTS = 3  # answers elsewhere that stayed the same across its writing


class Aside:
    """Those of a site, but for `pinned` ones, on which orders of answers hang."""

    def __init__(self, recording: Recording, model: Model, pinned: Container[str]) -> None:
        self._recording = recording
        self._model = model
        self._places = {slot: places for slot, places in self._written().items() if slot not in pinned}
        tested = self._tested() if self._places else set()
        self._places = {
            slot: places
            for slot, places in self._places.items()
            if slot in tested and not self._shows_elsewhere(slot)
        }

    def of(self, item: Item) -> set[str]:
        """The slots that lie aside of what an exchange asks for."""
        return {slot for slot in self._places if self._elsewhere(slot, item)}

    def _written(self) -> dict[str, set[str]]:
        """The slots that surely matter by their looks, but for those of which an answer is shown to the reader: where
        they are written."""
        found: dict[str, set[str]] = defaultdict(set)
        shown: set[str] = set()
        for event in (event for events in self._recording.events.values() for event in events):
            found[event.slot].add(_place(event))
            if event.capture.status >= 300 or "html" in event.capture.mime:
                shown.add(event.slot)
        priors = self._recording.priors
        strong = {slot for slot in self._model.modes if priors.get(slot) == STRONG}
        return {slot: places for slot, places in found.items() if slot in strong - shown}

    def _tested(self) -> set[str]:
        """The slots across whose writing answers elsewhere stayed the same, though it was another value."""
        tested: dict[str, set[tuple[str, int]]] = defaultdict(set)
        renewed: set[str] = set()
        for key, items in self._recording.groups.items():
            if key in self._recording.volatile:
                continue
            lines: dict[str, list[Item]] = defaultdict(list)
            for item in items:
                lines[item.line].append(item)
            for one, other in (pair for line in lines.values() for pair in pairwise(line)):
                if one.label != other.label or other.plain:
                    continue
                slots = {event.slot for event in self._recording.between(one, other)}
                for slot in slots & self._places.keys():
                    if self._elsewhere(slot, other):
                        tested[slot].add((key, other.begin))
                        before, after = (self._recording.last(i, slot) for i in (one, other))
                        if before is None or after is None or before[0] != after[0]:
                            renewed.add(slot)
        return {slot for slot in renewed if len(tested[slot]) >= TESTS}

    def _shows_elsewhere(self, slot: str) -> bool:
        """Whether answers elsewhere are told apart by a slot, and by nothing else."""
        keys = [k for k, items in self._recording.telling.items() if self._elsewhere(slot, items[0])]
        without = self._model.with_mode(slot, None)
        return next(contradictions(self._recording, without, sorted(keys)), None) is not None

    def _elsewhere(self, slot: str, item: Item) -> bool:
        """Whether an exchange asks for none of the places where a slot is written, nor for one above or below them."""
        place = f"{_place(item)}/"
        if place.count("/") == 1:  # the home page is above everything
            return True
        return not any(f"{w}/".startswith(place) or place.startswith(f"{w}/") for w in self._places[slot])


def _place(item: Item) -> str:
    """The host and path that is asked for."""
    url = item.capture.url.partition("#")[0].partition("?")[0]
    return url.partition("//")[2].rstrip("/")
