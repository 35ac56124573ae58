"""Requests of which it was not seen that they make no difference: what they may do to answers that writes explain.

A request is tried where it alone, beside others that were tried, came between two equal answers and nothing was written.
Of one that was not tried, the recording tells only what was said after as many of it as were recorded:

- a POST that was refused (a wrong password, a form that was shown again), where one stood between two different answers;
- a visit that was never recorded before it, since anything was written, unless it left this answer as it was, or two others;
- the request itself, asked for more often since anything was written than it was recorded.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, pairwise

from stillweb.snapshots.states.beside import led_to, name_of
from stillweb.snapshots.states.conditions import Asked, times
from stillweb.snapshots.states.following import Step
from stillweb.snapshots.states.learning import Item, Recording
from stillweb.snapshots.states.slots import SAFE_METHODS

LISTED = 40  # visits that an answer names; where more were not tried, none is named
ENOUGH = 2  # answers that a visit left as they were: one may be of a state in which there was nothing to do
NUMBER = re.compile(r"\d+")


class Times:
    """When a session asked for one thing. What was under way beside another may have come before or after it."""

    def __init__(self) -> None:
        self._begun: list[int] = []
        self._ends: list[int] = []
        self._over: list[int] = []  # when all that had begun until then were over

    def add(self, visit: Item) -> None:
        """One more, begun after those before."""
        self._begun.append(visit.begin)
        insort(self._ends, visit.end)
        self._over.append(max(visit.end, self._over[-1] if self._over else 0))

    def before(self, item: Item) -> tuple[int, int]:
        """How often it was asked before an exchange, at least and at most."""
        return bisect_right(self._ends, item.begin), bisect_left(self._begun, item.end)

    def since(self, at: int, item: Item) -> int:
        """How often at most from some time until an exchange was over."""
        return bisect_left(self._begun, item.end) - bisect_left(self._over, at)


class Untried:
    """What was not tried on a site: `steps` of all answers that change, `visits` and what `changes` something by line."""

    def __init__(
        self,
        recording: Recording,
        visits: Mapping[str, Sequence[Item]],
        steps: Mapping[str, list[Step]],
        changes: Callable[[Item], bool],
    ) -> None:
        # by session: one may be several clients, of which a replay asks all
        self._visits = _by_session(visits.values())
        self._named = defaultdict[tuple[str, str], Times](Times)
        for session, items in self._visits.items():
            for visit in items:
                self._named[session, name_of(visit)].add(visit)
        self._written = defaultdict[str, tuple[list[int], list[int]]](lambda: ([], []))
        written = _by_session(filter(changes, events) for events in recording.events.values())
        for session, items in written.items():
            for event in sorted(items, key=_end):
                ends, begun = self._written[session]
                ends.append(event.end)
                begun.append(max(event.begin, begun[-1] if begun else 0))
        self._tried = {key: tried(found) for key, found in steps.items()}
        left = {key: _left(found, self._tried[key]) for key, found in steps.items()}
        self._left = left  # by request, and what was tried for it, the answers that this left as they were
        anywhere = Counter(
            name for found in left.values() for name, answers in found.items() for _ in answers
        )
        self._anywhere = {name for name, count in anywhere.items() if count >= ENOUGH}
        # what was answered otherwise though nothing was written between: requests that differ in numbers only are alike
        self._by_itself = {
            _kind(recording.groups[key][0])
            for key, found in steps.items()
            if any(s.before and s.before != s.after for s in found)
        }
        self._led = led_to(recording)
        shows = {
            name_of(items[0])
            for items in recording.telling.values()
            if len({item.capture.status // 100 for item in items}) == 1
        }
        self._gets = {
            name_of(v)
            for items in visits.values()
            for v in items
            if v.capture.method in SAFE_METHODS and name_of(v) not in self._led | shows
        }
        self._posts = {name_of(v) for items in visits.values() for v in items if _refused(v)}

    def of(self, key: str, members: Sequence[Item], states: Iterable[Hashable]) -> list[Asked]:
        """For each answer to a request, in the state that it was recorded in, what must and must not have been asked."""
        own = name_of(members[0])
        if members[0].capture.method not in SAFE_METHODS:  # what it writes is known, or suspected
            return [Asked()] * len(members)
        known = self._tried[key]
        posts = (self._posts & self._stood(members)) - known
        left = self._left[key]
        gets = self._gets - self._anywhere - {own}
        if (own in known or own in self._led) and _kind(members[0]) not in self._by_itself:
            own = ""
        if len(gets) > LISTED:
            gets = set()
        groups: dict[Hashable, list[Item]] = defaultdict(list)
        keys = [(item.label, state) for item, state in zip(members, states, strict=True)]
        for item, group in zip(members, keys, strict=True):
            groups[group].append(item)
        found = {
            group: self._asked(
                items, posts, {name for name in gets if items[0].label not in left.get(name, ())}, own
            )
            for group, items in groups.items()
        }
        return [found[group] for group in keys]

    def _asked(self, items: list[Item], posts: set[str], gets: set[str], own: str) -> Asked:
        """What must hold before answers that said the same in one state."""
        before, never, since = set[str](), set[str](), set[str]()
        for name in posts:
            counts = [self._named[item.capture.session, name].before(item) for item in items]
            least, most = min(c[0] for c in counts), max(c[1] for c in counts)
            if least:
                before.add(times(name, least))
            never.add(times(name, most + 1))
        begun = [self._begun(item) for item in items]
        for name in gets | {own} - {""}:
            most = max(
                self._named[item.capture.session, name].since(at, item)
                for item, at in zip(items, begun, strict=True)
            )
            if name == own or not most:  # itself is among them
                since.add(times(name, most if name == own else 1))
        return Asked(frozenset(before), frozenset(never), frozenset(since))

    def _begun(self, item: Item) -> int:
        """When the last that was written before an exchange was sent."""
        ends, begun = self._written[item.capture.session]
        count = bisect_right(ends, item.begin)
        return begun[count - 1] if count else 0

    def _stood(self, members: Sequence[Item]) -> set[str]:
        """The visits that stood between two different answers in a session."""
        found: set[str] = set()
        for session, items in _by_session([members]).items():
            visits = self._visits[session]
            for one, other in pairwise(items):
                if one.label != other.label:
                    low, high = (bisect_left(visits, at, key=_begin) for at in (one.begin, other.end))
                    found |= {name_of(v) for v in visits[low:high]}
        return found


def tried(steps: Iterable[Step]) -> set[str]:
    """The requests that made no difference where they alone came between two answers, with those that were tried."""
    same = [step.between | {step.own} for step in steps if step.before == step.after]
    found: set[str] = set()
    while True:
        more = set[str]().union(*(left for names in same if len(left := names - found) == 1))
        if not more:
            return found
        found |= more


def _left(steps: Iterable[Step], known: set[str]) -> dict[str, set[str]]:
    """The answers that were given again after requests, by these: of requests that were tried."""
    found: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        if step.before == step.after and step.between | {step.own} <= known:
            for name in step.between:
                found[name].add(step.before)
    return found


def _kind(item: Item) -> str:
    return NUMBER.sub("0", f"{item.capture.method} {item.capture.url}")


def _by_session(groups: Iterable[Iterable[Item]]) -> Mapping[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(chain.from_iterable(groups), key=_begin):
        found[item.capture.session].append(item)
    return found


def _refused(item: Item) -> bool:
    return item.capture.method == "POST" and item.capture.status >= 400


def _begin(item: Item) -> int:
    return item.begin


def _end(item: Item) -> int:
    return item.end
