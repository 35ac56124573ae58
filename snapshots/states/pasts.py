"""What was asked before, where answers changed with it though nothing that is known to change something came between.

A GET may change what its server says next (a list of what was seen last, a basket that is filled by links). Where the
recording shows it, an answer is sure only after the very requests that it was recorded after; those that were seen to
make no difference to such answers are left out. A page that was seen to change by its being asked alone may change by
other requests, too: it is sure only after those that it was recorded after since anything was written. What differs
between sessions and never within one may be fixed by the first that was asked: nothing is left out of its past. Polled
data goes on by itself, but perhaps only after, or since, what was asked for above it (`/feed` for `/feed/more`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import pairwise

from stillweb.snapshots.capture import PARTIAL, Capture
from stillweb.snapshots.identity.irrelevant import irrelevant_url
from stillweb.snapshots.states.beside import Beside, name_of
from stillweb.snapshots.states.conditions import Asked, Effect, Past
from stillweb.snapshots.states.following import (
    Step,
    by_itself,
    by_others,
    changed,
    makes_none,
    odd,
    put_back,
    unusual,
    usual,
)
from stillweb.snapshots.states.learning import Item, Model, Recording, States, clean
from stillweb.snapshots.states.slots import SAFE_METHODS
from stillweb.snapshots.states.trails import AT_ONCE, Trail, told_of
from stillweb.snapshots.states.untried import Untried

LISTED = 40  # requests that make no difference, of which a capture names no more
TOO_MANY = 429  # RFC 6585, 4


class Pasts:
    """The requests of a site whose answers changed with what was asked before: `keys`.

    Those of `alone` may only have, since anything was written: pages that changed by being asked for again. `effect` is
    what an exchange is known, or suspected, to write; `ordered` are keys of which it is known what begins their order.
    """

    def __init__(
        self,
        recording: Recording,
        model: Model,
        states: States,
        effect: Callable[[Item], Effect | None],
        ordered: Collection[str],
    ) -> None:
        self.recording = recording
        self._model = model
        self._states = states
        self._writes = {
            item.place: told_of(written)
            for events in recording.events.values()
            for item in events
            if (written := effect(item)) is not None
        }
        self._visits: dict[str, list[Item]] = {}
        self._told: dict[str, list[Item]] = {}  # visits, and what wrote something
        self._trails: dict[str, Trail] = {}
        # keys of which it was seen that they don't change their own answers
        self._idempotent: set[str] = set()
        self.keys: set[str] = set()
        self.alone: set[str] = set()
        self._beside: Beside | None = None
        self._untried: Untried | None = None
        self.apart: set[str] = set()  # those whose answers differ between sessions, and never within one
        self.above: dict[str, frozenset[str]] = {}  # polled data, and what was asked for above of it
        self.spared: frozenset[str] = frozenset()
        # those that were refused for having been asked too often: how often, each request may count
        self.limited = {
            key
            for key, items in recording.groups.items()
            if any(map(_is_limit, items)) and not recording.drawn(key)
        }
        volatile = sorted(key for key in recording.volatile if self._may_hang(key))
        self._told_beside = {key for key in recording.telling if self._may_hang(key)}
        if not volatile and not self._told_beside:
            return
        for line, items in recording.lines.items():
            self._visits[line] = [i for i in items if self._may_tell(i)]
        if volatile:
            self._find(volatile, ordered)
        self._told_beside -= self.keys | self.alone
        steps = {key: list(self._steps(key)) for key in sorted(self._told_beside | set(volatile))}
        self._beside = self._suspected(steps)
        self._untried = Untried(recording, self._visits, steps, self._changes)

    def _find(self, volatile: list[str], ordered: Collection[str]) -> None:
        """Finds what hangs on what was asked before, of answers that nothing known explains."""
        recording = self.recording
        steps = {key: list(self._steps(key)) for key in volatile}
        polls = {
            key
            for key in volatile
            if by_itself(steps[key]) and self._is_poll(key) and not put_back(steps[key])
        }
        self._polls = {name_of(i) for key in polls for i in recording.groups[key]}
        if polls:  # how often they are asked is a matter of time
            for line, visits in self._visits.items():
                self._visits[line] = [v for v in visits if v.key not in polls]
            steps = {key: list(self._steps(key)) for key in volatile}
            self.above = {key: found for key in polls if (found := self._above(key, steps.pop(key)))}
        for line, items in recording.lines.items():
            places = {visit.place for visit in self._visits[line]}
            self._told[line] = [i for i in items if i.place in places or self._changes(i)]
            self._trails[line] = Trail([i.capture for i in self._told[line]], self._written)
        self._idempotent = {
            key
            for key, found in steps.items()
            if any(s.own in s.fresh and s.before == s.after for s in found)
        }
        itself = {key for key, found in steps.items() if by_itself(found)}
        for key, taken in steps.items():
            hangs = by_others(taken) if key in itself else self._by_past(key, taken)
            if hangs:
                self.keys.add(key)
            elif key in itself and key not in ordered and self._may_hang_on_others(key):
                self.alone.add(key)
        self._weigh(steps, itself)
        # what only sessions differ in hangs on all that was asked before, or each has it of its own
        self.apart = {key for key in self.keys - itself if not changed(steps[key])}
        self.keys -= {key for key in self.apart if not self._told_apart(key)}
        self.keys |= self.limited & recording.volatile
        self.alone -= self.keys
        told = {item.capture.key for key in self.keys for item in recording.groups[key]}
        for key, items in recording.groups.items():
            if items[0].capture.status in PARTIAL and items[0].capture.key in told:
                self.keys.add(key)

    def beside(self, key: str, states: Sequence[Hashable]) -> list[Asked]:
        """For each answer to a request that writes explain, recorded in a state, which visits must and must not have been made."""
        members = self.recording.groups[key]
        if self._beside is None or self._untried is None or key not in self._told_beside:
            return [Asked()] * len(members)
        known = self._beside.of(members)
        untried = self._untried.of(key, members, states)
        return [known.get(m.label, Asked()).both(one) for m, one in zip(members, untried, strict=True)]

    def _suspected(self, found: dict[str, list[Step]]) -> Beside:
        steps = [(False, found[key]) for key in sorted(self._told_beside)]
        near = self._near(self.keys | self.alone)
        # what was itself answered otherwise after writes shows their state, and is not thought to make one
        shown = {name_of(item) for key in self._told_beside for item in self.recording.groups[key]}
        return Beside(self.recording, self._visits, makes_none(set(self.spared), steps, near) | shown)

    def of(self, item: Item) -> Past | None:
        """What was asked before an exchange, where its answer hangs on that."""
        if item.key in self.above:
            return self._past(item, self.above[item.key], anew=True, only=True)
        if item.key not in self.keys and item.key not in self.alone:
            return None
        spared = self.spared if item.key in self._idempotent else self.spared - {name_of(item)}
        if item.key in self.limited or item.key in self.apart:
            spared = frozenset()
        return self._past(item, spared, item.key in self.alone)

    def _past(
        self, item: Item, named: frozenset[str] = frozenset(), anew: bool = False, only: bool = False
    ) -> Past:
        told = self._told[item.line]
        count = bisect_left(told, item.begin, key=_begin)
        trail = self._trails[item.line]
        under_way = [v for v in told[max(0, count - AT_ONCE) : count] if v.end > item.begin]
        if under_way:
            trail = Trail([v.capture for v in told[:count] if v not in under_way], self._written)
            count -= len(under_way)
        past = Past("", named, anew, only)
        return past._replace(told=trail.told(past, count))

    def _written(self, capture: Capture) -> str:
        return self._writes.get(capture.place, "")

    def _changes(self, item: Item) -> bool:
        return item.place in self._writes

    def _may_tell(self, item: Item) -> bool:
        return (
            not item.static
            and not self._changes(item)
            and not irrelevant_url(item.capture.url.partition("?")[0])
        )

    def _state(self, item: Item) -> object:
        return self._model.view(self._states[item.line][item.before], item)

    def _steps(self, key: str) -> Iterator[Step]:
        by_line: dict[str, list[Item]] = defaultdict(list)
        for item in self.recording.groups[key]:
            by_line[item.line].append(item)
        for line, items in by_line.items():
            visits = self._visits[line]
            since: dict[str, int] = {}  # when each was asked for the first time
            for visit in visits:
                since.setdefault(name_of(visit), visit.end)
            longest = max((v.end - v.begin for v in visits), default=0)
            first = items[0]
            if not any(map(self._changes, self.recording.events[line][: first.before])):
                told = frozenset(name_of(v) for v in visits if v.begin < first.end and v is not first)
                yield Step("", first.label, name_of(first), told, told)
            given: set[str] = set()
            forth: set[tuple[str, str]] = set()
            for one, other in pairwise(items):
                way = (one.label, other.label)
                back = other.label in given and other.label != one.label and way not in forth
                given.add(one.label)
                if not (clean(one, self._model) and clean(other, self._model)):
                    continue
                events = self.recording.events[line][one.before : other.late]
                if any(self._changes(e) for e in events if e is not other):
                    continue
                low = bisect_left(visits, one.begin - longest, key=_begin)
                near = visits[low : bisect_left(visits, other.end, key=_begin)]
                apart = [v for v in near if v.end > one.begin and v is not one and v is not other]
                between = frozenset(map(name_of, apart))
                told = between | {name_of(one)} if one is first else between
                fresh = frozenset(name for name in told if since.get(name, one.end) > one.begin)
                if not between:
                    forth.add(way)
                yield Step(one.label, other.label, name_of(one), between, fresh, back)

    def _by_past(self, key: str, steps: list[Step]) -> bool:
        """Whether what was asked before may be why answers differ that don't change by themselves."""
        if changed(steps):
            return True
        found: dict[object, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for item in self.recording.groups[key]:
            found[self._state(item)][item.label].add(self._past(item).told)
        return any(
            len({p for pasts in labels.values() for p in pasts}) > 1
            for labels in found.values()
            if len(labels) > 1
        )

    def _may_hang_on_others(self, key: str) -> bool:
        """Whether pages that changed by themselves may have changed by others, too: none differs with the same past."""
        members = self.recording.groups[key]
        if any(m.capture.method not in SAFE_METHODS or m.sender.overridden for m in members):
            return False
        if len({(m.capture.exact, m.sender.chosen) for m in members}) > 1:
            return False  # they may differ because of that
        return self._told_apart(key, anew=True)

    def _told_apart(self, key: str, *, anew: bool = False) -> bool:
        """Whether all that had the same past, and the same state, were answered alike."""
        said: dict[object, set[str]] = defaultdict(set)
        for item in self.recording.groups[key]:
            past = self._past(item, anew=True) if anew else self.of(item)
            said[self._states[item.line][item.before], past].add(item.label)
        return all(len(labels) == 1 for labels in said.values())

    def _weigh(self, steps: dict[str, list[Step]], itself: set[str]) -> None:
        """Finds what makes no difference, and of what changes by `itself` that which changes others, too."""
        named = {key: {step.own for step in steps[key]} for key in itself}
        while True:
            told = [(key in itself, steps[key]) for key in sorted(self.keys)]
            hanging = self.keys | self.alone
            spared = set[str]().union(*(names for key, names in named.items() if key not in hanging))
            spared = makes_none(spared, told, self._near(hanging))
            spared -= set[str]().union(*(names for key, names in named.items() if key in hanging))
            guilty: set[str] = set()
            for alone, found in told:
                for step in found:
                    if step.before and unusual(found, step, alone):
                        left = step.between - spared or step.between
                        guilty |= left if len(left) == 1 else set()
                    if step.before and step.between <= spared and odd(found, step, alone):
                        spared -= step.between
            more = {key for key, names in named.items() if names & guilty} - self.keys
            if not more:
                break
            self.keys |= more
        self.spared = frozenset([*sorted(self._polls), *sorted(spared - self._polls)][:LISTED])

    def _above(self, key: str, steps: list[Step]) -> frozenset[str]:
        """The requests to an address and those above it, but for those across which the answers went on as usual."""
        path = _path(self.recording.groups[key][0])
        own = {name_of(item) for item in self.recording.groups[key]}
        went_on = [s.between for s in steps if s.after in usual(steps, s.before)]
        found = {
            name_of(visit)
            for visits in self._visits.values()
            for visit in visits
            if (above := _path(visit)) == path or (not above.endswith("/") and path.startswith(f"{above}/"))
        }
        return frozenset(sorted(found - own - set[str]().union(*went_on))[:LISTED])

    def _near(self, hanging: Collection[str]) -> set[str]:
        """The requests to the addresses of those that hang on others, but for what was seen not to change its own answers."""
        paths = {_path(self.recording.groups[key][0]) for key in hanging}
        return {
            name_of(item)
            for key, items in self.recording.groups.items()
            if key not in hanging or key not in self._idempotent
            for item in items
            if _path(item) in paths
        }

    def _may_hang(self, key: str) -> bool:
        """Whether it is known whose the requests were, and no write was refused: that is told by its condition."""
        captures = [item.capture for item in self.recording.groups[key]]
        drawn = self.recording.drawn(key)
        return bool(captures[0].session) and not drawn and all(c.status != 412 for c in captures)

    def _is_poll(self, key: str) -> bool:
        """Whether answers that change by themselves are of no page, and none refuses what was given before."""
        captures = [item.capture for item in self.recording.groups[key]]
        return all("html" not in c.mime and c.status < 400 for c in captures)


def _begin(item: Item) -> int:
    return item.begin


def _path(item: Item) -> str:
    return item.capture.url.partition("?")[0]


def _is_limit(item: Item) -> bool:
    return item.capture.status == TOO_MANY
