"""Requests whose answer changed between two recordings in one snapshot."""

from __future__ import annotations

from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import SAFE_METHODS
from stillweb.snapshots.writer import OURS, Place


def answered_otherwise(snapshot: Snapshot, since: Place) -> list[Capture]:
    """Return the first new capture of each request that has another answer than before.

    `since` is the writer's `place` when it was opened. Both answers stay in the snapshot, and a replay may give the
    earlier one; the user, who may want the site as it is now, must be told.
    """
    known: dict[str, set[tuple[int, str]]] = {}
    later: list[Capture] = []
    for capture in snapshot.captures():
        if _is_since(capture.place, since):
            later.append(capture)
        else:
            known.setdefault(capture.key, set()).add((capture.status, capture.digest))
    found: dict[str, Capture] = {}
    wrote: set[tuple[str, str]] = (
        set()
    )  # sessions and sites: what comes after a write may differ because of it
    for capture in sorted(later, key=lambda one: one.place):
        told = capture.session, site_of(capture.url)
        if capture.method not in SAFE_METHODS:
            wrote.add(told)
        if told in wrote:
            continue
        answers = known.get(capture.key)
        if answers and (capture.status, capture.digest) not in answers:
            found.setdefault(capture.key, capture)
    return list(found.values())


def answered_on_other_days(snapshot: Snapshot) -> list[tuple[Capture, Capture]]:
    """Return (first capture, last differing one) for each request with another answer on another day.

    Archives of several years in one snapshot hold several versions of a site; a replay gives the earliest.
    """
    # most requests have one answer: keep only the captures of the others in memory
    answers: dict[str, int] = {}
    several: set[str] = set()
    for capture in snapshot.captures():
        asked, answer = capture.key, hash((capture.status, capture.digest))
        if answers.setdefault(asked, answer) != answer:
            several.add(asked)
    del answers
    first: dict[str, Capture] = {}
    other: dict[str, Capture] = {}
    found = [capture for capture in snapshot.captures() if capture.key in several]
    for capture in sorted(found, key=lambda one: (one.timestamp, one.place)):
        place = capture.key
        before = first.setdefault(place, capture)
        same = (before.status, before.digest) == (capture.status, capture.digest)
        if not same and before.timestamp[:8] != capture.timestamp[:8]:
            other[place] = capture
    return [(first[place], last) for place, last in other.items()]


def _is_since(place: Place, since: Place) -> bool:
    """Return True if the record at `place` was written at or after the writer's place `since`."""
    return OURS.fullmatch(place[0]) is not None and place >= since
