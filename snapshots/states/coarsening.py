"""Where a recording shows that two states are the same: what was written makes no difference, or not this one.

Every generalisation asks for tests that it could have failed. That a slot makes no difference to an answer is
believed only if the answer was seen with different values of it while everything else was the same, and that both
with and without each other slot: a basket that is emptied looks unchanged to whoever never filled it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from operator import itemgetter
from typing import Any

from stillweb.snapshots.states.conditions import UNSET
from stillweb.snapshots.states.learning import Item, Model, Recording, State, clean
from stillweb.snapshots.states.slots import APPEND, SET

# How many groups of states, newly the same, must agree in answers that do differ elsewhere.
VOID_AFTER, FORGET_AFTER, REPLACE_AFTER, COMMUTE_AFTER, PROVEN_AFTER = 4, 4, 4, 3, 2
# so many requests whose answers change must have been asked, before a slot is cleared for all others
KEYS = 2
STATES = 2  # an answer that never changed must have been seen in more than so many states a slot
MANY = 6  # so many values of a slot that made no difference show that none does
# so many values of a slot must have been seen to make no difference before others may be thought alike
SEEN = 3

Listed = dict[str, frozenset[str]]  # values of slots
Entry = tuple[str, dict[str, str]]  # label of an answer, and what was held


class Table:
    """The states in which one request was answered, as rows: fast to group by any of the slots."""

    def __init__(self, entries: list[Entry]) -> None:
        self.slots = sorted({slot for _, held in entries for slot in held})
        rows = {(label, tuple([held.get(s, UNSET) for s in self.slots])) for label, held in entries}
        self.labels = [label for label, _ in sorted(rows)]
        self.rows = [row for _, row in sorted(rows)]

    def groups(self, kept: list[int]) -> dict[Any, list[int]] | None:
        """Row numbers by what the kept columns hold; None if those don't decide the answer."""
        pick = itemgetter(*kept) if kept else _nothing
        found: dict[Any, list[int]] = {}
        labels = self.labels
        for number, key in enumerate(map(pick, self.rows)):
            group = found.get(key)
            if group is None:
                found[key] = [number]
            elif labels[group[0]] != labels[number]:
                return None
            else:
                group.append(number)
        return found

    @cached_property
    def telling(self) -> frozenset[int]:
        """The columns without which the others don't decide the answer."""
        every = range(len(self.slots))
        return frozenset(c for c in every if self.groups([o for o in every if o != c]) is None)

    def is_free(self, column: int, others: list[int], telling: set[int]) -> bool:
        """Whether a column makes no difference, the others being what may make one."""
        groups = self.groups(others)
        if groups is None:
            return False
        rows = self.rows
        tested = [g[0] for g in groups.values() if len(g) > 1 and len({rows[n][column] for n in g}) > 1]
        if not tested:
            return False
        return all(
            {rows[n][o] != UNSET for n in tested} == {row[o] != UNSET for row in rows}
            for o in others
            if o in telling
        )


def _nothing(row: tuple[str, ...]) -> tuple[str, ...]:
    return ()


def free_slots(entries: list[Entry], near: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """The slots that make no difference to one request's answers, with all values that were seen.

    A slot is free when the others decide the answer without it, when it held different things in some states of
    those, and when such states were seen both with and without each slot that does make a difference, or is
    `near` and so is likely to.
    """
    return free_columns(Table(entries), near)


def free_columns(table: Table, near: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """As `free_slots` of a table's rows."""
    every = range(len(table.slots))
    telling = set(table.telling)
    if not telling and (len(set(table.labels)) > 1 or len(table.rows) <= STATES * len(every)):
        telling = set(every)  # something may, and nobody knows what
    telling |= {c for c in every if table.slots[c] in near}
    free: set[int] = set()
    again = True
    while again:
        again = False
        for column in every:
            if column in free:
                continue
            others = [o for o in every if o not in free and o != column]
            if table.is_free(column, others, telling):
                free.add(column)
                again = True
    return {table.slots[c]: frozenset(row[c] for row in table.rows) for c in sorted(free)}


@dataclass(slots=True)
class Group:
    """Exchanges of one request whose states only a new model calls the same; all were answered alike."""

    state: State
    members: list[tuple[Item, dict[str, str], State]]  # what was held before, by the old model


class Coarsener:
    """Coarsens the model of a site."""

    def __init__(self, recording: Recording, model: Model, pinned: Iterable[str] = ()) -> None:
        self.recording = recording
        self.model = model
        self.pinned = frozenset(pinned)  # slots that answers of their own order hang on
        self._look()

    def coarsen(self) -> Model:
        """The coarsest model that the recording supports."""
        before = None
        while before != self.model:  # what one step merges is evidence for the next
            before = self.model
            for slot in sorted(self.model.modes):
                self._clear(slot)
            for slot in sorted(self.model.modes):
                self._void(slot)
            for slot in sorted(set(self.model.modes) - self.model.forgets):
                self._forget(slot)
            for slot in sorted(self.model.modes):
                if self.model.modes[slot] == APPEND:
                    self._replace(slot)
        return self.model

    def _look(self) -> None:
        """By key of changing answers: what was held at each, and the slots that make a difference to it."""
        self.states = states = self.recording.states(self.model)
        self.entries: dict[str, list[tuple[Item, State]]] = {}
        self.relevant: dict[str, set[str]] = {}
        self.seen: dict[str, set[str]] = {}
        self.telling: dict[str, set[str]] = {}
        for key, items in sorted(self.recording.telling.items()):
            found = [(i, self.model.view(states[i.line][i.before], i)) for i in items if clean(i, self.model)]
            self.entries[key] = found
            # each answer in each state once
            table = Table([(label, dict(state)) for label, state in {(i.label, state) for i, state in found}])
            # the others don't decide without these
            self.telling[key] = {table.slots[c] for c in table.telling}
            self.seen[key] = set(table.slots)
            self.relevant[key] = self.seen[key] - free_columns(table, self.recording.near(key)).keys()

    def _adopt(self, model: Model) -> None:
        self.model = model
        self._look()

    def _clear(self, slot: str) -> None:
        """A slot that makes no difference wherever it was tested does nothing.

        It must have been tested on most requests whose answers change, and on all where it is likely to show.
        """
        if slot in self.pinned:
            return
        tested = 0
        for key in self.entries:
            if slot in self.seen[key] and slot not in self.relevant[key]:
                tested += 1
            elif slot in self.recording.near(key) or slot in self.telling[key]:
                return
        if tested >= KEYS and tested * 2 >= len(self.entries):
            self._adopt(self.model.with_mode(slot, None))

    def _merged(self, model: Model, slot: str) -> dict[str, list[Group]] | None:
        """The groups that a new model merges, by key; None if it would merge different answers.

        It differs from the one before in what it says of a slot.
        """
        states, written = self.recording.states(model, self.states, slot), self.recording.traces
        found: dict[str, list[Group]] = {}
        for key, entries in self.entries.items():
            groups: dict[State, list[tuple[Item, State]]] = defaultdict(list)
            for item, old in entries:
                line = item.line
                new = model.view(states[line][item.before], item) if slot in written[line] else old
                groups[new].append((item, old))
            for members in groups.values():
                if len({item.label for item, _ in members}) > 1:
                    return None
            found[key] = [
                Group(state, [(item, dict(old), old) for item, old in members])
                for state, members in groups.items()
                if len({old for _, old in members}) > 1
            ]
        return found

    def _concerned(self, slot: str) -> list[str]:
        return [key for key, relevant in self.relevant.items() if slot in relevant]

    def _void(self, slot: str) -> None:
        """Requests to a slot that were answered so and so changed nothing (a wrong password)."""
        labels = sorted(
            {e.label for events in self.recording.events.values() for e in events if e.slot == slot}
        )
        for label in labels if len(labels) > 1 else ():
            if (slot, label) in self.model.void:
                continue
            model = replace(self.model, void=self.model.void | {(slot, label)})
            merged, keys = self._merged(model, slot), self._concerned(slot)
            if merged is None or not keys:
                continue
            kinds: set[bool] = set()
            shown = 0
            for key in keys:
                groups = [g for g in merged[key] if len({held.get(slot) for _, held, _ in g.members}) > 1]
                kinds |= {slot in dict(g.state) for g in groups}
                shown += len(groups)
                if not groups:
                    break
            else:
                if kinds == {True, False} and shown >= VOID_AFTER:
                    self._adopt(model)

    def _forget(self, slot: str) -> None:
        """Writing a slot makes the server forget all that was written before (a logout)."""
        model = replace(self.model, forgets=self.model.forgets | {slot})
        merged = self._merged(model, slot)
        if merged is None or slot in self.pinned:
            return
        shown = 0
        for key, relevant in self.relevant.items():
            for other in relevant - {slot}:
                if other.startswith("c."):
                    continue
                found = [g for g in merged[key] if _forgotten(g, slot, other)]
                shown += len(found)
                if not found:
                    return
        if shown >= FORGET_AFTER:
            self._adopt(model)

    def _replace(self, slot: str) -> None:
        """What was thought to be added to a slot replaces what was there."""
        model = self.model.with_mode(slot, SET)
        merged, keys = self._merged(model, slot), self._concerned(slot)
        if merged is None or not keys:
            return
        shown = 0
        for key in keys:
            found = [g for g in merged[key] if len({held.get(slot) for _, held, _ in g.members}) > 1]
            shown += len(found)
            if not found:
                return
        if shown >= REPLACE_AFTER:
            self._adopt(model)

    # -- what is left to say about slots

    def replaced(self) -> frozenset[str]:
        """The `set` slots of which the recording shows that a new value replaces the old one."""
        found = set()
        for slot, mode in self.model.modes.items():
            if mode != SET:
                continue
            shown = [self._histories(key, slot) for key in self._concerned(slot)]
            if shown and all(shown) and sum(shown) >= PROVEN_AFTER:
                found.add(slot)
        return frozenset(found)

    def repeated(self, slots: Iterable[str]) -> frozenset[tuple[str, str]]:
        """The values of `set` slots of which the recording shows that to write one again changes nothing."""
        found = set()
        for slot in slots:
            seen: dict[str, set[bool]] = defaultdict(set)
            for key in self._concerned(slot):
                for item, _ in self.entries[key]:
                    if last := self.recording.last(item, slot):
                        seen[last[0]].add(last[1])
            found |= {(slot, value) for value, ways in seen.items() if len(ways) > 1}
        return frozenset(found)

    def _histories(self, key: str, slot: str) -> int:
        """In how many states the answer was the same after different values had been written to a slot in turn."""
        groups: dict[State, set[str]] = defaultdict(set)
        for item, state in self.entries[key]:
            if slot in dict(state) and (told := self.recording.turns(item, slot)):
                groups[state].add(told)
        return sum(len(histories) > 1 for histories in groups.values())

    def commuting(self) -> frozenset[frozenset[str]]:
        """The pairs of slots whose order the recording shows to make no difference."""
        found: dict[frozenset[str], int] = defaultdict(int)
        refuted: set[frozenset[str]] = set()
        for key, entries in self.entries.items():
            by_held: dict[frozenset[tuple[str, str]], dict[tuple[str, ...], set[str]]] = defaultdict(
                lambda: defaultdict(set)
            )
            for item, state in entries:
                kept = [(s, v) for s, v in state if s in self.relevant[key] and not s.startswith("c.")]
                by_held[frozenset(kept)][tuple(s for s, _ in kept)].add(item.label)
            for pair in combinations(sorted(self.relevant[key]), 2):
                told = False
                for orders in by_held.values():
                    ranks: dict[bool, set[str]] = defaultdict(set)
                    for order, labels in orders.items():
                        if pair[0] in order and pair[1] in order:
                            ranks[order.index(pair[0]) < order.index(pair[1])] |= labels
                    if len(ranks) == 2:
                        if ranks[True] == ranks[False] and len(ranks[True]) == 1:
                            told = True
                            found[frozenset(pair)] += 1
                        else:
                            refuted.add(frozenset(pair))
                if not told:
                    refuted.add(frozenset(pair))
        return frozenset(p for p, count in found.items() if count >= COMMUTE_AFTER and p not in refuted)


def _forgotten(group: Group, slot: str, other: str) -> bool:
    """Whether somebody wrote `other` and then `slot`, and somebody else never wrote `other`."""
    after = any(
        slot in held and other in held and list(held).index(other) < list(held).index(slot)
        for _, held, _ in group.members
    )
    return after and any(other not in held for _, held, _ in group.members)


def by_values(dropped: Listed) -> tuple[Listed, Listed, Listed]:
    """The slots that make no difference by how many values they were seen with: some, enough to presume it, many."""
    parted: tuple[Listed, Listed, Listed] = {}, {}, {}
    for slot, values in dropped.items():
        if not slot.startswith("c."):
            count = len(values) or MANY
            parted[(count >= SEEN) + (count >= MANY)][slot] = values
    return parted
