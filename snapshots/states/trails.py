"""The exchanges of a session with a site, in order: what was asked before, as a hash by which two sessions compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import reduce

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.identity.irrelevant import irrelevant_url
from stillweb.snapshots.states.conditions import UNSET, Effect, Past, added, read, times

AT_ONCE = 50  # visits among which those are that were under way with the next
KEY = 8  # hex digits of a request's key, by which it is named


def is_visit(capture: Capture) -> bool:
    """Whether an exchange may have changed something by its being asked alone, for all that its state tells."""
    found = read(capture.state)
    return not found.any and found.effect is None and not irrelevant_url(capture.url.partition("?")[0])


def overlap(one: Capture, other: Capture) -> bool:
    """Whether two exchanges of a recorded session were under way at once."""
    apart = one.place != other.place and one.session == other.session
    return apart and one.begin < other.end and other.begin < one.end


def told_of(effect: Effect) -> str:
    """What is compared of what an exchange wrote: where, and what."""
    return effect.slot + effect.value


def written_by(capture: Capture) -> str:
    """What an exchange wrote, as its state tells; "" for nothing."""
    effect = read(capture.state).effect
    return told_of(effect) if effect is not None else ""


class Trail:
    """What was asked of a site, in order. What was recorded at once has no order, wherever it is asked again."""

    def __init__(
        self, visits: Iterable[Capture] = (), written: Callable[[Capture], str] = written_by
    ) -> None:
        self.visits = list(visits)
        self._written = written
        self._names = (set[str](), set[str]())
        self._counts = (Counter[str](), Counter[str]())
        self._named = 0  # visits of which the names are known
        self._known: dict[tuple[Collection[str], bool, bool], list[tuple[str, tuple[Capture, ...]]]] = {}

    def names(self, *, since: bool) -> set[str]:
        """What the visits are called, with how often each was made: all, or those since anything was written."""
        for visit in self.visits[self._named :]:
            if self._written(visit):
                self._names[1].clear()
                self._counts[1].clear()
                continue
            for names, counts in zip(self._names, self._counts, strict=True):
                counts[visit.key[:KEY]] += 1
                names.add(times(visit.key[:KEY], counts[visit.key[:KEY]]))
        self._named = len(self.visits)
        return self._names[since]

    def told(self, past: Past, count: int | None = None) -> str:
        """A hash of those of the first so many exchanges that count to a past."""
        _, named, anew, only = past
        count = len(self.visits) if count is None else count
        # after each number of exchanges, with what is at its end at once
        known = self._known.setdefault((named, anew, only), [(UNSET, ())])
        for visit in self.visits[len(known) - 1 : count]:
            before, together = known[-1]
            written = self._written(visit)
            if written and anew:
                before, together = UNSET, ()
            elif not only if written else (visit.key[:KEY] in named) == only and is_visit(visit):
                if any(overlap(visit, one) for one in together):
                    together = (*together, visit)
                else:
                    before, together = self._hash(before, together), (visit,)
            known.append((before, together))
        return self._hash(*known[count])

    def before(self, capture: Capture, past: Past) -> str:
        """As `told`, of what was not recorded at once with a capture."""
        if any(overlap(visit, capture) for visit in self.visits[-AT_ONCE:]):
            return Trail([v for v in self.visits if not overlap(v, capture)]).told(past)
        return self.told(past)

    def _hash(self, before: str, together: tuple[Capture, ...]) -> str:
        return reduce(added, sorted(self._written(visit) or visit.key for visit in together), before)
