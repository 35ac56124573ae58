"""Choice among captures by HTTP's rules (RFC 9110): conditions, ranges, and request fields outside the key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from stillweb.snapshots.capture import PARTIAL, Capture, Response, layer_of
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.http.bodies import JSON, spells_numbers_alike
from stillweb.snapshots.http.preconditions import FITS, UNSURE, judge, preconditions_of
from stillweb.snapshots.http.spans import RecordedRange, recorded_range_of
from stillweb.snapshots.identity.cookies import SIGNED_IN
from stillweb.snapshots.identity.header_fields import fields_of
from stillweb.snapshots.identity.keys import Key, parse, unpacked_body
from stillweb.snapshots.identity.rules import RuleSet
from stillweb.snapshots.request import CONDITIONAL, CONDITIONS, SAFE_METHODS, Headers, Request
from stillweb.snapshots.secrets.detect import proves_password
from stillweb.snapshots.warc.messages import set_cookies

REMEMBERED = 1 << 15  # captures
DOUBTED = 0.75  # the confidence of an answer whose condition may have had another result
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that tell of a moment
MOST = 0.98  # that such an answer comes again
CUT = 0.9  # what an answer is worth of which only the first was kept
VARIED = 0.7  # that an answer with Vary: * is the same for other header fields
OTHER_TYPE = 0.9  # that a server answers 1.0 as it answered 1
UNPROVED = 0.98  # that a recorded user who proves a password anew has the recorded one

Place = tuple[str, int]
T = TypeVar("T")


class Store(Protocol):
    """The part of a snapshot that a matcher needs."""

    @property
    def rules(self) -> RuleSet: ...
    def candidates(self, urlkey: str, /) -> tuple[Capture, ...]: ...
    def failures(self, address: str | None = None, /) -> Iterable[Failure]: ...
    def metadata_addresses(self, start: str, /) -> Iterable[str]: ...
    def prefix(self, start: str, /) -> Iterator[Capture]: ...
    def read(self, capture: Capture, /) -> Response: ...
    def read_start(self, capture: Capture, size: int, /) -> Response: ...
    def said_at(self, uri: str, /) -> Iterable[dict[str, Any]]: ...
    def head(self, capture: Capture, /) -> Response: ...
    def cut_short(self, capture: Capture, /) -> str: ...
    def read_request(self, capture: Capture, /) -> Request: ...


def _once(read: Callable[[Capture], T]) -> Callable[[Capture], T]:
    """Return `read` with its results remembered while there is room."""
    known: dict[Place, T] = {}

    def remembered(capture: Capture) -> T:
        if capture.place not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[capture.place] = read(capture)
        return known[capture.place]

    return remembered


class CaptureFacts:
    """Reader of what the records of captures tell beyond their index lines; each is read once.

    `fields`: the header fields of the recorded request; `part`: the bytes that a recorded 206 holds; `gives`: whether an answer sets
    a cookie; `cut`: whether its body is incomplete.
    """

    def __init__(self, store: Store) -> None:
        self.fields: Callable[[Capture], Headers] = _once(lambda capture: store.read_request(capture).headers)
        self.part: Callable[[Capture], RecordedRange] = _once(
            lambda capture: recorded_range_of(store.head(capture).header)
        )
        self.gives: Callable[[Capture], bool] = _once(lambda one: bool(set_cookies(store.head(one).headers)))
        self.cut: Callable[[Capture], bool] = _once(lambda one: bool(one.truncated or store.cut_short(one)))


class FollowedSession(NamedTuple):
    """The recorded session that a replayed one follows on a site, and how far it is. `page`: the address of a browser's page."""

    session: str
    end: int
    page: str = ""


def followed_by(capture: Capture, request: Request) -> FollowedSession:
    """Return the recorded session that a session follows after it was answered by `capture`."""
    page = "html" in capture.mime and not 300 <= capture.status < 400 and _asks_for_page(request)
    return FollowedSession(capture.session, capture.end, capture.url if page else "")


def _asks_for_page(request: Request) -> bool:
    """Return True if a browser requests the document of a page, not a subresource."""
    place = request.header("sec-fetch-dest")  # absent on requests to a remote host over plain http
    return (place or "document") == "document" and (request.header("accept") or "").startswith("text/html")


@dataclass(slots=True)
class LookupState:
    """A request, its session, and the results so far of the choice among captures."""

    request: Request
    key: Key
    name: str  # of the session
    followed: FollowedSession
    page: FollowedSession | None  # the same as of the last page, whatever it brought in
    read_request: Callable[[Capture], Request]
    peek: CaptureFacts
    at: str = ""  # the moment that the client named, as 17 digits
    unsure: bool = False
    why: list[str] = field(default_factory=list)

    def followed_among(self, captures: list[Capture]) -> str:
        """Return the recorded session that this one follows among captures: of its own name, else of the last page or answer."""
        if any(c.session == self.name for c in captures):
            return self.name
        return (self.page or self.followed).session

    def worth(self, chosen: Capture) -> float:
        """Return the factor by which the chance of an answer is less: for a condition, numbers of another type, another client of what varies by anything, a password that nothing proves, a cut body."""
        unproved = any(n.lower() in SIGNED_IN and proves_password(v) for n, v in self.request.headers)
        return min(
            DOUBTED if self.unsure else 1.0,
            CUT if self.peek.cut(chosen) else 1.0,
            OTHER_TYPE if self._has_other_numbers(chosen) else 1.0,
            VARIED if self._varies_by_anything(chosen) else 1.0,
            UNPROVED if unproved else 1.0,
        )

    def _varies_by_anything(self, chosen: Capture) -> bool:
        """Return True if an answer says that it varies by anything (RFC 9110, 12.5.5), and the fields of the request are others."""
        if not any(name == "*" for name, _ in chosen.vary):
            return False
        return fields_of(self.peek.fields(chosen)) != fields_of(self.request.headers)

    def _has_other_numbers(self, chosen: Capture) -> bool:
        """Return True if the body of the same request has other types of numbers."""
        if chosen.exact == self.key.exact or chosen.key != self.key.canonical or not self.request.body:
            return False
        recorded, asked = self.read_request(chosen), self.request
        both = parse(recorded).body.kind == parse(asked).body.kind == JSON
        return both and not spells_numbers_alike(unpacked_body(recorded), unpacked_body(asked))


def captures_that_fit(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the captures that may answer a request by its conditions and ranges."""
    for step in (whole_or_asked, same_preconditions, same_conditions):
        captures = step(captures, now) if captures else captures
    return captures


def same_preconditions(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the captures of a write whose conditions come to the same as those of the request; else unsure ones."""
    if now.request.method in SAFE_METHODS:
        return captures  # the result of a GET's conditions is computed from its answer
    asked = preconditions_of(now.request.headers)
    conditions = [(preconditions_of(now.peek.fields(c)), c) for c in captures]
    sure = [c for own, c in conditions if own == asked] or [
        c for own, c in conditions if judge(asked, own, c.status) == FITS
    ]
    if sure:
        return sure
    unsure = [c for own, c in conditions if judge(asked, own, c.status) == UNSURE]
    now.unsure = True
    if not unsure:
        now.why.append("precondition")
    return unsure


def whole_or_asked(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return whole answers before parts and "not modified", which only answer a request for just that, as may a whole."""
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


def same_conditions(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the captures asked for under the same conditions, or for the same part: a server may heed neither."""
    doubted = now.request.method == "HEAD" and now.request.header("range")
    if (len(captures) < 2 and not doubted) or not now.request.conditional():
        return captures
    same = _asked_likewise(captures, now)
    if doubted and not same:
        now.unsure = True  # it has no meaning there (RFC 9110, 14.2), and yet some servers heed it
    return same or _asked_with_such(captures, now) or captures


def _asked_with_such(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the captures that show whether the server heeds any of the fields that the request has."""
    asked = [n for n in CONDITIONAL if now.request.header(n) is not None]
    return [c for c in captures if any(now.read_request(c).header(n) is not None for n in asked)]


def _asked_likewise(captures: list[Capture], now: LookupState) -> list[Capture]:
    wanted = now.request.conditional()
    return [c for c in captures if now.read_request(c).conditional() == wanted]


def _all_of_it(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the parts (206) that are all of the file, if no other is of another representation."""
    if now.request.method not in ("GET", "HEAD"):
        return []
    parts = [(now.peek.part(c), c) for c in captures if c.status == 206]
    if _apart([part for part, _ in parts]):
        return []
    # An answer to If-Range need not have a Content-Type (RFC 9110, 15.3.7).
    return [c for part, c in parts if part.whole and now.read_request(c).header("if-range") is None]


def _parts_around(captures: list[Capture], now: LookupState) -> list[Capture]:
    """Return the recorded part (206) that holds the range asked for, if no other is of another representation."""
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


def _changed(captures: list[Capture], whole: list[Capture], now: LookupState) -> bool:
    """Return True if a recorded part is of none of the wholes: the representation of another part is unknown then."""
    of = {(part.tag, part.modified) for part in map(now.peek.part, whole)}
    parts = [now.peek.part(c) for c in captures if c.status == 206]
    return any((part.tag, part.modified) not in of for part in parts)


def _apart(parts: list[RecordedRange]) -> bool:
    """Return True if several parts may be of different representations."""
    known = [part.representation for part in parts]
    validators, sizes = {same and same[0] for same in known}, {same[1] for same in known if same} - {-1}
    return len(validators) > 1 or len(sizes) > 1 or (len(parts) > 1 and None in validators)
