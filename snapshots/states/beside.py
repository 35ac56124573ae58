"""Visits that stood beside a write: where one came between each time that an answer changed, it may be why as well as the write.

That is so where the same answer was never given both with it and without, nor it seen to make no difference. The answer
is then sure only where it was asked for, or was not, as when that was recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from stillweb.snapshots.states.conditions import Asked
from stillweb.snapshots.states.learning import Item, Recording
from stillweb.snapshots.states.slots import SAFE_METHODS
from stillweb.snapshots.states.trails import KEY


class Beside:
    """The visits of a site, by line, as suspects; `spared` are those that were seen to make no difference."""

    def __init__(
        self, recording: Recording, visits: Mapping[str, Sequence[Item]], spared: Collection[str]
    ) -> None:
        left = {name_of(e) for events in recording.events.values() for e in events}.union(spared)
        left |= led_to(recording)
        self._visits = {
            line: [v for v in items if v.capture.method in SAFE_METHODS and name_of(v) not in left]
            for line, items in visits.items()
        }
        self._since: dict[str, dict[str, int]] = defaultdict(dict)  # by line, when each was there first
        for line, items in self._visits.items():
            for visit in items:
                self._since[line].setdefault(name_of(visit), visit.end)

    def of(self, members: Sequence[Item]) -> dict[str, Asked]:
        """By answer to one request, what must and must not have been asked for it to be sure."""
        suspects = self._suspects(members)
        if not suspects:
            return {}
        found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
        for name in suspects:
            seen: dict[str, set[bool]] = defaultdict(set)
            for item in members:
                seen[item.label].add(self._since[item.line].get(name, item.begin) < item.begin)
            ways = [next(iter(ways)) for ways in seen.values() if len(ways) == 1]
            if len(set(ways)) < 2:
                continue
            for label, way in seen.items():
                if len(way) == 1:
                    found[label][0 if True in way else 1].add(name)
        return {label: Asked(frozenset(yes), frozenset(no)) for label, (yes, no) in found.items()}

    def _suspects(self, members: Sequence[Item]) -> list[str]:
        """The visits that came between each time that the answer changed in a session."""
        by_line: dict[str, list[Item]] = defaultdict(list)
        for item in sorted(members, key=_begin):
            by_line[item.line].append(item)
        found: set[str] | None = None
        for line, items in by_line.items():
            visits = self._visits.get(line, [])
            for one, other in pairwise(items):
                if one.label == other.label:
                    continue
                near = visits[bisect_left(visits, one.begin, key=_begin) :]
                near = near[: bisect_left(near, other.end, key=_begin)]
                came = {name_of(v) for v in near} - {name_of(one)}
                found = came if found is None else found & came
                if not found:
                    return []
        return sorted(found or ())


def name_of(item: Item) -> str:
    """What a request is called where a capture names it."""
    return item.capture.key[:KEY]


def led_to(recording: Recording) -> set[str]:
    """What was asked for since a write's answer led there: every client does so, and none does the one without the other."""
    return {
        name_of(after)
        for items in recording.lines.values()
        for write, after in pairwise(items)
        if write.touch is not None and 300 <= write.capture.status < 400
    }


def _begin(item: Item) -> int:
    return item.begin
