"""Lookups: what a request is answered with, and why; and the session in which it is asked: what that did and was given at each site."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.contents.failure_lookup import KnownFailure
from stillweb.snapshots.evidence.conditions import CaptureFacts, FollowedSession, Store, followed_by
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.events import History
from stillweb.snapshots.evidence.parts import Given
from stillweb.snapshots.evidence.socket_messages import SocketMessages
from stillweb.snapshots.identity.group import Group
from stillweb.snapshots.identity.irrelevant import irrelevant, irrelevant_url
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.recognising import Recogniser
from stillweb.snapshots.identity.rules import Issued, RuleSet
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Request

MISS = "miss"
HANGS = "hangs"
REMEMBERED = 200  # captures served last, in which issued values are looked up


@dataclass(frozen=True, slots=True)
class NearCapture:
    """A capture that comes near, what differs in it, and the rule that would join it, were it in force."""

    capture: Capture
    differs: list[str]
    rule: str | None


@dataclass(frozen=True, slots=True)
class Rival:
    """A recorded answer to a request, its chance of being right now, and the grounds of that chance in words."""

    capture: Capture
    confidence: float
    grounds: list[str]


class Matching(Protocol):
    """The part of a matcher that lookups, sessions and the evidence of a site need."""

    @property
    def snapshot(self) -> Store: ...
    @property
    def rules(self) -> RuleSet: ...
    @property
    def peek(self) -> CaptureFacts: ...
    @property
    def socket_messages(self) -> SocketMessages: ...
    def answers_since(self, served: Sequence[Capture], values: list[str], /) -> int | None: ...
    def group(self, url: str, /) -> Group: ...
    def issued(self, request: Request, /) -> Issued: ...
    def twins(self, request: Request, /) -> list[Capture]: ...
    def nearest(self, lookup: Lookup, /) -> list[NearCapture]: ...
    def note(self, session: Session, request: Request, capture: Capture, trust: float, /) -> None: ...
    def note_live(self, session: Session, request: Request, response: Response, /) -> None: ...


@dataclass(slots=True, eq=False)
class Lookup:
    """The answer to a request, or the miss, with its verdict and confidence.

    `verdict` is `exact`, `canonical`, `varies:<field>`, `rule:<ids>`, or, with `capture` None, `failed:<reason>` (then `failed` says of what)
    or `miss`; `hangs` where a long poll is not answered yet, for those who can wait. `rule` holds the ids alone.
    """

    verdict: str
    capture: Capture | None
    rule: str | None
    key: Key
    request: Request
    confidence: float = 0.0  # the chance that this is the right answer
    ambiguous: bool = False  # whether that is too small to be sure
    inert: bool = False  # nothing follows from it for the session, in which only the request decided
    state: str = ""  # a label of the session's earlier requests at the site, "" if none of them may decide
    why: tuple[str, ...] = ()
    # recorded ones, and those that the client drew in their places
    ids: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # likewise, by pseudonyms
    returned: Mapping[str, str] = field(default_factory=dict)  # likewise, values that its client is sent back
    matcher: Matching | None = field(default=None, repr=False)
    failed: KnownFailure | None = None
    grounds: Callable[[], list[str]] | None = field(default=None, repr=False)  # of the confidence, in words
    # the two likeliest answers, by the confidence of this one
    rivals: Callable[[float], list[Rival]] | None = field(default=None, repr=False)
    polled: bool = False  # whether it is a long poll
    _nearest: list[NearCapture] | None = field(default=None, repr=False)

    @property
    def reported_confidence(self) -> Confidence | None:
        """The confidence in the answer as it is shown to users; None for a miss."""
        return Confidence.of(self.confidence) if self.confidence and self.capture is not None else None

    @property
    def irrelevant(self) -> bool:
        """Return True if nothing that is read depends on it; found out when asked, which costs a tenth of a lookup."""
        if self.capture is None:
            return irrelevant(self.request)
        return irrelevant_url(self.request.url.partition("?")[0])

    def explain(self) -> list[NearCapture]:
        """Return the captures that come nearest, what differs in each, and the rule that would join them."""
        if self._nearest is None:
            self._nearest = self.matcher.nearest(self) if self.matcher is not None else []
        return self._nearest


def confidence_of(lookup: Lookup) -> Confidence | None:
    """Return the confidence in the answer to a lookup; None if there is no doubt, or none that matters."""
    confidence = lookup.reported_confidence
    return confidence if confidence is not None and confidence.millionths and not lookup.irrelevant else None


@dataclass(slots=True)
class SessionPast:
    """Events of a session at one site, the answers that each request got there, and the cookies that the site gave."""

    history: History = field(default_factory=History)
    last: dict[int, int] = field(default_factory=dict)  # answers by key of the event
    given: Given = field(default_factory=Given)


@dataclass(slots=True, eq=False)
class Session:
    """The cursor of one client. Two sessions share nothing."""

    name: str = "default"
    # by site, where anything happened that may decide
    past: dict[str, SessionPast] = field(default_factory=dict)
    missed_site: str | None = None  # the site at which the last lookup noted a miss
    found: Capture | None = None  # what the last lookup found
    matcher: Matching | None = None  # that of the last lookup
    followed: dict[str, FollowedSession] = field(default_factory=dict)
    # the same since the last page: its subresources are requested in any order
    pages: dict[str, FollowedSession] = field(default_factory=dict)
    # by site, the address of the page before that
    previous_pages: dict[str, str] = field(default_factory=dict)
    served: deque[Capture] = field(default_factory=partial(deque, maxlen=REMEMBERED))
    # by site, what it said over web sockets
    socket_words: dict[str, Counter[str]] = field(default_factory=dict)
    drawn_ids: dict[str, str] = field(default_factory=dict)  # recorded ids, and those that it drew instead
    returned: dict[str, str] = field(default_factory=dict)  # likewise, values that it is sent back
    secrets: Recogniser | None = None  # what it has sent that was recorded by pseudonyms

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, {one.name: getattr(self, one.name) for one in fields(self)} | {"matcher": None}

    def copy(self, site: str) -> Session:
        """Return a session that moves by itself, with what a request to `site` is read by."""
        past = {site: SessionPast(given=self.past[site].given.copy())} if site in self.past else {}
        own = self.secrets and self.secrets.copy()
        drawn, returned = dict(self.drawn_ids), dict(self.returned)
        return Session(
            self.name, past, served=self.served.copy(), drawn_ids=drawn, returned=returned, secrets=own
        )

    def answered(self, lookup: Lookup) -> None:
        """Note that the answer of `lookup` was given."""
        capture = lookup.capture
        if capture is None:
            return
        self.repeated(site_of(capture.url), capture, followed_by(capture, lookup.request))
        if lookup.inert:
            return
        self.missed_site = None
        self.drawn_ids.update(lookup.ids)
        self.returned.update(lookup.returned)
        self.draws(lookup.secrets)
        if lookup.matcher is not None:
            lookup.matcher.note(self, lookup.request, capture, lookup.confidence)

    def repeated(self, site: str, capture: Capture, followed: FollowedSession) -> None:
        """Note an answer from which nothing follows."""
        self.served.append(capture)
        self.followed[site] = followed
        if followed.page:
            if site in self.pages and self.pages[site].page != followed.page:
                self.previous_pages[site] = self.pages[site].page
            self.pages[site] = followed

    def happened(self, request: Request, response: Response) -> None:
        """Note that a live server gave `response`; it replaces what the lookup before noted."""
        if self.found is not None:
            self.served.append(self.found)
        if self.matcher is not None:
            self.matcher.note_live(self, request, response)

    def draws(self, secrets: Mapping[str, str]) -> None:
        """Note secrets that its client drew itself, by the pseudonyms for which they stand from now on."""
        if secrets:
            self.secrets = self.secrets or Recogniser()
            self.secrets.draw(secrets)

    def says(self, site: str, word: str) -> None:
        """Note a message that the client sent over a web socket of `site`; it may change the site's answers."""
        self.socket_words.setdefault(site, Counter())[word] += 1
        self.at(site)

    def at(self, site: str) -> SessionPast:
        """Return the session's past at `site`; it is kept from now on."""
        return self.past.setdefault(site, SessionPast())

    def following(self, site: str) -> FollowedSession:
        """Return the recorded session that it follows on a site: at first that of its own name, if there is one."""
        return self.followed.get(site) or FollowedSession(self.name, -1)
