"""Slots that may matter, though nothing in a recording proves it: what was written there makes an answer unsure, no more.

One that is cleared changes no other answers. It may still change those to itself (a basket that says how much is in it),
unless one of these was seen to stay the same when it was asked for again: so an answer is unsure when it is asked for again,
and a short one, which may say no more than that, after others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Set

from stillweb.snapshots.states.conditions import UNSET
from stillweb.snapshots.states.learning import Item, Model, Recording
from stillweb.snapshots.states.slots import SET, WEAK

TESTS = 3  # times that answers stayed the same across a suspected exchange, before it is cleared


class Suspicion:
    """The slots of a site that are suspected, but those in `proven`, which surely matter."""

    def __init__(self, recording: Recording, proven: Container[str]) -> None:
        self.recording = recording
        weak = {slot for slot, prior in recording.priors.items() if prior == WEAK and slot not in proven}
        self.slots = weak - _cleared(recording)
        self.once = weak - self.slots - _repeated(recording)  # cleared, but for answers to themselves
        # those of them with short answers
        self.own = self.once - {item.slot for item in recording.items if not item.brief}
        self._beside = _beside(recording, weak - self.slots)
        self.own |= frozenset().union(*self._beside.values())
        self._states = recording.states(Model(dict.fromkeys(self.slots | self.own, SET)))

    def around(self, item: Item) -> dict[str, frozenset[str]]:
        """What the slots held before an exchange: of one that was being written just then, either."""
        held = dict(self._states[item.line][item.before])
        found = {slot: {value} for slot, value in held.items() if slot in self.slots or slot == item.slot}
        for slot in self._beside.get(item.key, ()):
            found.setdefault(slot, {held.get(slot, UNSET)})
        if item.slot in self.own:
            found.setdefault(item.slot, {UNSET})
        if not self.slots.isdisjoint(item.during):
            for event in self.recording.events[item.line][item.before : item.late]:
                if event.begin < item.end and event is not item and event.slot in self.slots:
                    found.setdefault(event.slot, {UNSET}).add(event.value)
        return {slot: frozenset(values) for slot, values in found.items()}


def _beside(recording: Recording, slots: Set[str]) -> dict[str, set[str]]:
    """By key, the slots that were written each time that its answer changed, and never where it did not."""
    found: dict[str, set[str]] = {}
    for key, items in recording.telling.items() if slots else ():
        changed: set[str] = set()
        kept: set[str] = set()
        by_line: dict[str, Item] = {}
        for item in items:
            one = by_line.get(item.line)
            if one is not None:
                written = slots & {event.slot for event in recording.between(one, item)}
                if one.label != item.label:
                    changed |= written
                else:
                    kept |= {s for s in written if _renewed(recording, s, one, item)}
            by_line[item.line] = item
        if changed - kept:
            found[key] = changed - kept
    return found


def _renewed(recording: Recording, slot: str, one: Item, other: Item) -> bool:
    """Whether a slot held another value before the one than before the other."""
    before, after = (recording.last(item, slot) for item in (one, other))
    return (before and before[0]) != (after and after[0])


def _repeated(recording: Recording) -> set[str]:
    """The slots where a request that was made again was answered as before: none that counts how often it was."""
    found: set[str] = set()
    for items in recording.groups.values():
        seen: dict[str, set[str]] = defaultdict(set)
        for item in items:
            if item.slot and item.label in seen[item.line]:
                found.add(item.slot)
            seen[item.line].add(item.label)
    return found


def _cleared(recording: Recording) -> set[str]:
    """The slots that a recording shows to change nothing, though another value was written there."""
    tested: dict[str, set[str]] = defaultdict(set)
    renewed: set[str] = set()
    for key, items in recording.groups.items():
        if key in recording.volatile:
            continue
        by_line: dict[str, Item] = {}
        for item in items:
            one = by_line.get(item.line)
            # a bare redirect tells nothing of what changed
            if one is not None and one.label == item.label and not item.plain:
                before, after = recording.written(one), recording.written(item)
                # that it was asked itself before is no test of what it writes
                for slot in {event.slot for event in recording.between(one, item)} - {item.slot}:
                    tested[slot].add(f"{key} {item.begin}")
                    if slot not in before or before[slot][0] != after[slot][0]:
                        renewed.add(slot)
            by_line[item.line] = item
    return {slot for slot in renewed if len(tested[slot]) >= TESTS}
