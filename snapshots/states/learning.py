"""What a recording proves about its server: which exchanges changed its state, and how.

A model says for each slot whether what is written there matters, and whether a new value replaces the one
before (`set`) or comes on top of it (`append`). It starts from the priors of `stillweb.snapshots.states.slots`; then

1. wherever the model calls two states the same and one request was answered differently in them, the smallest
   refinement that tells them apart is taken (evidence against);
2. what can be coarsened, so that more states are the same, is coarsened where the recording shows that it may be
   (evidence for, `stillweb.snapshots.states.coarsening`).

All here is deterministic: ties go by text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby, islice, pairwise

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.states.conditions import UNSET, added
from stillweb.snapshots.states.in_turn import InTurn
from stillweb.snapshots.states.senders import NOBODY, Sender
from stillweb.snapshots.states.slots import APPEND, READ, SET, STRONG, WEAK, Touch

EACH = "each"  # a mode of resources: PUT and DELETE set, PATCH appends
COOKIE = "cookie"  # a mode, beside set and append, for what is written by the request's own cookies
ROUNDS = 60
PAIRS = 3000  # contradictions looked at in a round


@dataclass(slots=True, eq=False)
class Item:
    """A capture as evidence. `key` groups requests that ask the same, `label` answers that say the same."""

    capture: Capture
    line: str  # whose exchanges these are: session
    begin: int
    end: int
    key: str
    label: str = ""
    touch: Touch | None = None
    slot: str = ""  # id
    value: str = ""
    static: bool = False
    drawn: bool = False  # by a model, from what its request holds
    plain: bool = False  # a bare redirect or an empty answer: nothing of the state shows in it
    brief: bool = False  # an answer that may say no more than what came of a change
    before: int = 0  # how many changes of its line were over when it began
    late: int = 0  # how many when none that began before its end was under way any more
    during: frozenset[str] = frozenset()  # slots being written while it was under way
    shown: frozenset[str] = frozenset()  # names of the paths where what it wrote is likeliest to show
    sender: Sender = NOBODY  # of a static one, whose request isn't read
    place: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.place = self.capture.place

    @property
    def choices(self) -> dict[str, str]:
        """The cookies of its request that may be choices."""
        return self.sender.choices


# of a slot: places among the events, values, and after each of those the value that was sent last and a hash of all
Trace = tuple[list[int], list[str], list[str], list[str]]


def path_name(url: str) -> str:
    """The first part of a URL's path, by which pages and forms of one thing belong together: /cart/clear -> cart."""
    path = url.partition("#")[0].partition("?")[0].partition("//")[2].partition("/")[2]
    return path.strip("/").partition("/")[0].partition(".")[0].lower()


State = tuple[tuple[str, str], ...]  # slot and value, oldest change first
States = dict[str, list[State]]  # by line, after each number of events


@dataclass(frozen=True, slots=True)
class Model:
    """How the slots of a site behave. A slot without a mode doesn't matter."""

    modes: dict[str, str]
    forgets: frozenset[str] = frozenset()  # slots whose writing makes the server forget all
    void: frozenset[tuple[str, str]] = frozenset()  # slot and answer of requests that changed nothing
    cookies: frozenset[str] = frozenset()  # of the request, that decide the answer

    def with_mode(self, slot: str, mode: str | None) -> Model:
        """The model with another mode for a slot."""
        modes = {s: m for s, m in self.modes.items() if s != slot}
        if mode is not None:
            modes[slot] = mode
        return replace(self, modes=modes)

    def step(self, state: State, event: Item) -> State:
        """The state after an exchange."""
        mode = self.modes.get(event.slot)
        if mode is None or (event.slot, event.label) in self.void:
            return state
        if event.slot in self.forgets:
            return ()
        before = next((v for s, v in state if s == event.slot), UNSET)
        append = mode == APPEND or (mode == EACH and event.touch is not None and event.touch.op == APPEND)
        value = added(before, event.value) if append else event.value
        if before != UNSET:
            state = tuple([item for item in state if item[0] != event.slot])
        return (*state, (event.slot, value))

    def view(self, state: State, item: Item) -> State:
        """The state as it is compared, with the cookies that the request brought."""
        return self.brought(item) + state if self.cookies else state

    def brought(self, item: Item) -> State:
        """The cookies of a request that decide its answer, as a part of the state."""
        return tuple([(f"c.{name}", item.choices.get(name, UNSET)) for name in sorted(self.cookies)])


def _written(before: tuple[str, str], event: Item) -> tuple[str, str]:
    return event.value, added(before[1], event.value)


class Recording:
    """All exchanges with one site, as evidence."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = sorted(items, key=lambda i: (i.line, i.begin, i.end, i.place))
        self.lines: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            self.lines[item.line].append(item)
        self.events: dict[str, list[Item]] = {}
        for line, items_of in self.lines.items():
            events = [i for i in items_of if i.touch is not None]
            events.sort(key=lambda i: (i.end, i.begin, i.place))
            ends = [e.end for e in events]
            self.events[line] = events
            spans = [(e.begin, e.end, e.slot) for e in events]
            longest = max((e - b for b, e, _ in spans), default=0)
            for item in items_of:
                item.before = bisect_left(ends, item.begin)
                item.late = bisect_left(ends, item.end + longest + 1)
                item.during = frozenset(
                    s
                    for e, (b, _, s) in zip(
                        events[item.before : item.late], spans[item.before : item.late], strict=True
                    )
                    if b < item.end and e is not item
                )
        self.traces = {line: self._trace(events) for line, events in self.events.items()}
        self.group()
        self.volatile: set[str] = set()  # keys whose answers change by themselves
        self.priors: dict[str, str] = {}
        self.ops: dict[str, str] = {}
        self.shown: dict[str, set[str]] = defaultdict(set)
        rank = {STRONG: 0, WEAK: 1, READ: 2}
        told: set[str] = set()  # slots of which a request's own text says what it does
        for line in sorted(self.events):
            for event in self.events[line]:
                touch = event.touch
                assert touch is not None
                self.shown[event.slot] |= event.shown
                old = self.priors.get(event.slot, READ)
                if touch.told and event.slot not in told:
                    told.add(event.slot)
                    old = READ
                if touch.told or event.slot not in told:
                    self.priors[event.slot] = min(old, touch.prior, key=lambda p: rank[p])
                known = self.ops.setdefault(event.slot, touch.op)
                if known != touch.op:
                    self.ops[event.slot] = EACH if touch.slot.startswith("resource ") else APPEND

    def group(self) -> None:
        """Groups the exchanges by their keys: again, where these were parted."""
        self.groups: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            if not item.static:
                self.groups[item.key].append(item)

    @staticmethod
    def _trace(events: list[Item]) -> dict[str, Trace]:
        traces: dict[str, Trace] = {}
        sent: dict[str, InTurn[Item, tuple[str, str]]] = {}
        for index, event in enumerate(events):
            trace = traces.setdefault(event.slot, ([], [], [], []))
            turns = sent.setdefault(event.slot, InTurn((UNSET, UNSET), _written))
            last, told = turns.add(event)
            trace[0].append(index)
            trace[1].append(event.value)
            trace[2].append(last)
            trace[3].append(told)
        return traces

    def written(self, item: Item) -> dict[str, tuple[str, str]]:
        """For each slot written before an exchange: the last value, and a hash of all values in order."""
        found = {}
        for slot, (indexes, _, lasts, hashes) in self.traces[item.line].items():
            count = bisect_left(indexes, item.before)
            if count:
                found[slot] = (lasts[count - 1], hashes[count - 1])
        return found

    def turns(self, item: Item, slot: str) -> str:
        """A hash of the different values that were written to a slot in turn: one that was written again is one."""
        indexes, values, _, _ = self.traces[item.line].get(slot, ([], [], [], []))
        told = [value for value, _ in groupby(values[: bisect_left(indexes, item.before)])]
        return reduce(added, told, UNSET) if told else ""

    def last(self, item: Item, slot: str) -> tuple[str, bool] | None:
        """The value that was written to a slot before an exchange, and whether it was there already; None for none."""
        indexes, values, _, _ = self.traces[item.line].get(slot, ([], [], [], []))
        count = bisect_left(indexes, item.before)
        return (values[count - 1], count > 1 and values[count - 2] == values[count - 1]) if count else None

    def near(self, key: str) -> frozenset[str]:
        """The slots whose writing is likeliest to show in the answers to a key."""
        name = path_name(self.groups[key][0].capture.url)
        return frozenset(s for s, paths in self.shown.items() if name in paths)

    def drawn(self, key: str) -> bool:
        """Whether the answers to a key are drawn by a model. One that refused its client may know it by what it was told."""
        return all(i.drawn and i.capture.status not in (401, 403) for i in self.groups[key])

    @property
    def telling(self) -> dict[str, list[Item]]:
        """The groups that were answered in more than one way, and not by themselves."""
        return {
            key: items
            for key, items in self.groups.items()
            if key not in self.volatile and len({i.label for i in items}) > 1
        }

    def states(self, model: Model, known: States | None = None, slot: str = "") -> States:
        """By line, the state after each number of events.

        `known` are those of a model that differs from this one in a slot only.
        """
        found = {}
        for line, events in self.events.items():
            if known is not None and slot not in self.traces[line]:
                found[line] = known[line]
                continue
            turns = InTurn[Item, State]((), model.step)
            found[line] = [(), *map(turns.add, events)]
        return found

    def between(self, one: Item, other: Item) -> list[Item]:
        """The events of a line that were over before `other` began, but not before `one` did."""
        return self.events[one.line][one.before : other.before]


def clean(item: Item, model: Model) -> bool:
    """Whether no change that matters was under way while it was recorded."""
    return not item.during or not any(slot in model.modes for slot in item.during)


def contradictions(
    recording: Recording, model: Model, keys: Iterable[str] | None = None
) -> Iterator[tuple[Item, Item]]:
    """Pairs that the model calls the same state and that were answered differently; neighbours first."""
    states = recording.states(model)
    telling = recording.telling
    for key in sorted(telling) if keys is None else keys:
        seen: dict[State, list[Item]] = defaultdict(list)
        for item in telling[key]:
            if clean(item, model):
                seen[model.view(states[item.line][item.before], item)].append(item)
        for items in seen.values():
            if len({i.label for i in items}) < 2:
                continue
            found = [(a, b) for a, b in pairwise(items) if a.label != b.label and a.line == b.line]
            if not found:
                found = [(a, b) for a, b in pairwise(items) if a.label != b.label]
            yield from found


def _by_itself(one: Item, other: Item) -> bool:
    """Whether neighbours were answered differently though nothing came between them and both asked alike."""
    return (
        one.label != other.label
        and one.before == other.before
        and not one.during
        and not other.during
        and one.touch is None
        and one.choices == other.choices
    )


class Learner:
    """Finds the model of a site."""

    def __init__(self, recording: Recording, cookies: Iterable[str] = ()) -> None:
        self.recording = recording
        self.acquitted: Counter[tuple[str, str]] = Counter()
        self.guilty: Counter[tuple[str, str]] = Counter()
        modes = {
            slot: recording.ops[slot] for slot, prior in sorted(recording.priors.items()) if prior == STRONG
        }
        self.model = Model(modes, cookies=frozenset(cookies))

    def learn(self) -> Model:
        """The model, refined until nothing contradicts it."""
        self._find_volatile()
        self._weigh()
        self._repeat()
        self._refine()
        return self.model

    def _find_volatile(self) -> None:
        """Answers that differ between neighbours with nothing at all between them change by themselves."""
        for key, items in self.recording.groups.items():
            drawn = self.recording.drawn(key)
            by_line: dict[str, list[Item]] = defaultdict(list)
            for item in items:
                by_line[item.line].append(item)
            for line in by_line.values():
                if any(_by_itself(a, b) or (drawn and self._by_chance(a, b)) for a, b in pairwise(line)):
                    self.recording.volatile.add(key)

    def _by_chance(self, one: Item, other: Item) -> bool:
        """Whether neighbours that are drawn were answered differently though nothing but questions came between them."""
        between = self.recording.between(one, other)
        return one.label != other.label and all(self.recording.priors[e.slot] == READ for e in between)

    def _weigh(self) -> None:
        """Counts for each key the events across which it stayed the same, or changed with no other suspect."""
        for key, items in sorted(self.recording.telling.items()):
            by_line: dict[str, list[Item]] = defaultdict(list)
            for item in items:
                by_line[item.line].append(item)
            for line in by_line.values():
                for one, other in pairwise(line):
                    slots = {e.slot for e in self.recording.between(one, other)}
                    chosen = {
                        f"c.{n}"
                        for n in sorted(set(one.choices) | set(other.choices))
                        if one.choices.get(n) != other.choices.get(n)
                    }
                    if one.label == other.label:
                        before, after = self.recording.written(one), self.recording.written(other)
                        for slot in slots:
                            if slot not in before or before[slot][0] != after[slot][0]:
                                self.acquitted[key, slot] += 1
                        for name in chosen:
                            self.acquitted[key, name] += 1
                    elif len(slots | chosen) == 1:
                        self.guilty[key, (slots | chosen).pop()] += 1

    def _repeat(self) -> None:
        """A change that was answered differently when it was repeated adds something every time."""
        for items in self.recording.groups.values():
            by_line: dict[str, list[Item]] = defaultdict(list)
            for item in items:
                if item.touch is not None and self.model.modes.get(item.slot) == SET:
                    by_line[item.line].append(item)
            if any(a.label != b.label for line in by_line.values() for a, b in pairwise(line)):
                self.model = self.model.with_mode(items[0].slot, APPEND)

    def _refine(self) -> None:
        for _ in range(ROUNDS):
            found: list[dict[str, str]] = []
            unexplained: set[str] = set()
            for one, other in islice(contradictions(self.recording, self.model), PAIRS):
                suspects = self._suspects(one, other)
                if suspects:
                    found.append(suspects)
                else:
                    unexplained.add(one.key)
            if not found:
                self.recording.volatile |= unexplained
                if not unexplained:
                    return
                continue
            # The pairs with the fewest suspects say most; what they prove may explain the others.
            fewest = min(len(suspects) for suspects in found)
            changes: dict[str, str] = {}
            for suspects in found:
                for slot, mode in suspects.items() if len(suspects) == fewest else ():
                    if changes.get(slot) != APPEND:
                        changes[slot] = mode
            for slot, mode in sorted(changes.items()):
                if mode == COOKIE:
                    self.model = replace(self.model, cookies=self.model.cookies | {slot[2:]})
                else:
                    self.model = self.model.with_mode(slot, mode)

    def _suspects(self, one: Item, other: Item) -> dict[str, str]:
        """The slots, with their new modes, any of which tells two exchanges apart."""
        first, second = self.recording.written(one), self.recording.written(other)
        found: dict[str, str] = {}
        for slot in sorted(set(first) | set(second)):
            a, b = first.get(slot), second.get(slot)
            mode = self.model.modes.get(slot)
            if a == b:
                continue
            last = (a or ("", ""))[0] != (b or ("", ""))[0]
            found[slot] = SET if mode is None and last and self.recording.ops[slot] == SET else APPEND
        for name in sorted((set(one.choices) | set(other.choices)) - self.model.cookies):
            if one.choices.get(name) != other.choices.get(name):
                found[f"c.{name}"] = COOKIE
        if len(found) > 1:
            guilty = {s: m for s, m in found.items() if self.guilty[one.key, s]}
            found = guilty or {s: m for s, m in found.items() if not self.acquitted[one.key, s]} or found
        # a question is the last to be suspected, and what the request itself says the first
        if len(found) > 1:
            told = any(mode == COOKIE for mode in found.values())
            likely = (STRONG, None) if told else (STRONG, WEAK)
            found = {s: m for s, m in found.items() if self.recording.priors.get(s) in likely} or found
        return found
