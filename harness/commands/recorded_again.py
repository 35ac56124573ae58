"""A recording that goes on with an earlier one: what it was answered otherwise."""

from __future__ import annotations

from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.writer import OURS, Place


def answered_otherwise(snapshot: Snapshot, since: Place) -> list[Capture]:
    """The first capture since then of each request that was known in the same state, and answered otherwise.

    `since` is the writer's `place` when it was opened. Both answers stay in the snapshot, so that a replay may give the
    earlier one; whoever wanted the site as it is now must hear of it.
    """
    known: dict[tuple[str, str], set[tuple[int, str]]] = {}
    later: list[Capture] = []
    for capture in snapshot.captures():
        if _is_since(capture.place, since):
            later.append(capture)
        else:
            known.setdefault((capture.key, _state(capture)), set()).add((capture.status, capture.digest))
    found: dict[str, Capture] = {}
    for capture in sorted(later, key=lambda one: one.place):
        answers = known.get((capture.key, _state(capture)))
        if answers and (capture.status, capture.digest) not in answers:
            found.setdefault(capture.key, capture)
    return list(found.values())


def answered_on_other_days(snapshot: Snapshot) -> list[tuple[Capture, Capture]]:
    """Of each request that was answered otherwise on another day, in the same state: its first answer, and the last other one.

    Archives of several years in one snapshot hold several sites, of which a replay gives the earliest.
    """
    # of most requests there is one answer: of the others alone captures are kept in memory
    answers: dict[int, int] = {}
    several: set[int] = set()
    for capture in snapshot.captures():
        asked, answer = _asked(capture), hash((capture.status, capture.digest))
        if answers.setdefault(asked, answer) != answer:
            several.add(asked)
    del answers
    first: dict[tuple[str, str], Capture] = {}
    other: dict[tuple[str, str], Capture] = {}
    found = [capture for capture in snapshot.captures() if _asked(capture) in several]
    for capture in sorted(found, key=lambda one: (one.timestamp, one.place)):
        place = capture.key, _state(capture)
        before = first.setdefault(place, capture)
        same = (before.status, before.digest) == (capture.status, capture.digest)
        if not same and before.timestamp[:8] != capture.timestamp[:8]:
            other[place] = capture
    return [(first[place], last) for place, last in other.items()]


def _is_since(place: Place, since: Place) -> bool:
    """Whether a record at `place` was written when the writer stood at `since`, or later."""
    return OURS.fullmatch(place[0]) is not None and place >= since


def _asked(capture: Capture) -> int:
    """A number for what was asked in which state; that others may have the same one is of no harm."""
    return hash((capture.key, _state(capture)))


def _state(capture: Capture) -> str:
    """The state without its place in a series, and what was asked before: a site that changed looks like an answer that
    changes by itself or with that."""
    return " ".join(item for item in capture.state.split(" ") if not item.startswith(("#", "%")))
