"""Requests whose answer changed between two recordings in one snapshot."""

from __future__ import annotations

from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.writer import OURS, Place


def answered_otherwise(snapshot: Snapshot, since: Place) -> list[Capture]:
    """Return the first new capture of each request that has another answer than before, in the same state.

    `since` is the writer's `place` when it was opened. Both answers stay in the snapshot, and a replay may give the
    earlier one; the user, who may want the site as it is now, must be told.
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
    """Return (first capture, last differing one) for each request with another answer on another day, same state.

    Archives of several years in one snapshot hold several versions of a site; a replay gives the earliest.
    """
    # most requests have one answer: keep only the captures of the others in memory
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
    """Return True if the record at `place` was written at or after the writer's place `since`."""
    return OURS.fullmatch(place[0]) is not None and place >= since


def _asked(capture: Capture) -> int:
    """Return a hash of the request and its state; collisions do no harm."""
    return hash((capture.key, _state(capture)))


def _state(capture: Capture) -> str:
    """Return the state without its items for series (`#`) and previous requests (`%`).

    A site that changed looks like an answer that changes by itself or with the previous requests.
    """
    return " ".join(item for item in capture.state.split(" ") if not item.startswith(("#", "%")))
