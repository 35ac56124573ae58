"""Steps of the choice among captures for requests with conditions or for a part."""

from __future__ import annotations

from stillweb.snapshots.capture import PARTIAL, Capture, layer_of
from stillweb.snapshots.evidence.peeking import Part
from stillweb.snapshots.evidence.preconditions import FITS, UNSURE, judge, preconditions_of
from stillweb.snapshots.evidence.situation import Situation
from stillweb.snapshots.request import CONDITIONAL, CONDITIONS, SAFE_METHODS


def same_preconditions(captures: list[Capture], now: Situation) -> list[Capture]:
    """Of a write's, those whose conditions tell that this one's would have been met likewise; else unsure ones."""
    if now.request.method in SAFE_METHODS:
        return captures  # what a GET's conditions come to is worked out from its answer
    asked = preconditions_of(now.request.headers)
    told = [(now.peek.preconditions(c), c) for c in captures]
    sure = [c for own, c in told if own == asked] or [
        c for own, c in told if judge(asked, own, c.status) == FITS
    ]
    if sure:
        return sure
    unsure = [c for own, c in told if judge(asked, own, c.status) == UNSURE]
    now.unsure = True
    if not unsure:
        now.why.append("precondition")
    return unsure


def whole_or_asked(captures: list[Capture], now: Situation) -> list[Capture]:
    """Whole answers before parts and "not modified", which only answer a request for just that, as may a whole."""
    partial = PARTIAL if now.request.method in SAFE_METHODS else PARTIAL - {412}
    whole = [c for c in captures if c.status not in partial]
    if len(whole) == len(captures):
        return captures
    whole = whole or _all_of_it(captures, now)
    if whole and not now.request.conditional():
        return whole
    same = _asked_likewise(captures, now)
    if whole and same:  # a whole that lies over a part answers for it
        over = max(layer_of(c.filename) for c in whole)
        same = [c for c in same if layer_of(c.filename) >= over]
    if whole and not same and now.request.header("range") and _changed(captures, whole, now):
        now.unsure = True
    return same or whole or _parts_around(captures, now)


def same_conditions(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those asked for under the same conditions, or for the same part: a server may heed neither."""
    doubted = now.request.method == "HEAD" and now.request.header("range")
    if (len(captures) < 2 and not doubted) or not now.request.conditional():
        return captures
    same = _asked_likewise(captures, now)
    if doubted and not same:
        now.unsure = True  # it has no meaning there (RFC 9110, 14.2), and yet some servers heed it
    return same or _asked_with_such(captures, now) or captures


def _asked_with_such(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those that tell whether the server heeds any of the fields that the request has."""
    asked = [n for n in CONDITIONAL if now.request.header(n) is not None]
    return [c for c in captures if any(now.read_request(c).header(n) is not None for n in asked)]


def _asked_likewise(captures: list[Capture], now: Situation) -> list[Capture]:
    wanted = now.request.conditional()
    return [c for c in captures if now.read_request(c).conditional() == wanted]


def _all_of_it(captures: list[Capture], now: Situation) -> list[Capture]:
    """The parts (206) that are all of the file, if no other is of another representation."""
    if now.request.method not in ("GET", "HEAD"):
        return []
    parts = [(now.peek.part(c), c) for c in captures if c.status == 206]
    if _apart([part for part, _ in parts]):
        return []
    # An answer to If-Range need not say of what kind it is (RFC 9110, 15.3.7).
    return [c for part, c in parts if part.whole and now.read_request(c).header("if-range") is None]


def _parts_around(captures: list[Capture], now: Situation) -> list[Capture]:
    """The recorded part (206) in which the one range lies that is asked, if no other is of another representation."""
    asked, if_range = now.request.header("range"), now.request.header("if-range")
    if asked is None:
        return []
    wanted = [now.request.combined(n) for n in CONDITIONS]
    parts = [(now.peek.part(c), c) for c in captures if c.status == 206]
    found = [(part, c) for part, c in parts if part.holds(asked, if_range)]
    around = [(p, c) for p, c in found if [now.read_request(c).combined(n) for n in CONDITIONS] == wanted]
    if not around or _apart([part for part, _ in (around if if_range is not None else parts)]):
        now.why.append("part")
        return []
    return [max((c for _, c in around), key=lambda c: layer_of(c.filename))]  # the bytes of all are the same


def _changed(captures: list[Capture], whole: list[Capture], now: Situation) -> bool:
    """Whether a part was recorded that is of none of the wholes: of which of them another one is, is not known."""
    of = {(part.tag, part.modified) for part in map(now.peek.part, whole)}
    parts = [now.peek.part(c) for c in captures if c.status == 206]
    return any((part.tag, part.modified) not in of for part in parts)


def _apart(parts: list[Part]) -> bool:
    """Whether several parts may not be of the same bytes."""
    seen = {part.representation for part in parts}
    return len(seen) > 1 or (len(parts) > 1 and None in seen)
