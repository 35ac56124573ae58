"""A session in replay: what it did at each site, what it was given, and which recorded session it follows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import NamedTuple, Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.evidence.events import History
from stillweb.snapshots.evidence.polls import POLLING, channel_of
from stillweb.snapshots.http.fragments import asks_for_page
from stillweb.snapshots.identity.recognising import Recogniser
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import SAFE_METHODS, Request

REMEMBERED = 200  # captures served last, in which issued values are looked up


class Weigher(Protocol):
    """The part of a matcher that notes what happened in a session."""

    def note(self, session: Session, request: Request, capture: Capture, trust: float, /) -> None: ...
    def note_live(self, session: Session, request: Request, response: Response, /) -> None: ...


class Answered(Protocol):
    """A lookup, as a session is told of it. `ids`: those that its client drew, by the recorded ones."""

    @property
    def capture(self) -> Capture | None: ...
    @property
    def request(self) -> Request: ...
    @property
    def inert(self) -> bool: ...
    @property
    def confidence(self) -> float: ...
    @property
    def polled(self) -> bool: ...
    @property
    def ids(self) -> Mapping[str, str]: ...
    @property
    def matcher(self) -> Weigher | None: ...


class Followed(NamedTuple):
    """The recorded session that a replayed one follows on a site, and how far it is. `page`: as a browser's page."""

    session: str
    end: int
    timestamp: str
    page: bool = False


def followed_by(capture: Capture, request: Request) -> Followed:
    """Return what a session follows that was answered by `capture`."""
    page = "html" in capture.mime and asks_for_page(request)
    return Followed(capture.session, capture.end, capture.timestamp, page)


@dataclass(slots=True)
class Past:
    """What a session did at one site: its events, the answers to each request, and the cookies that it was given."""

    history: History = field(default_factory=History)
    last: dict[int, int] = field(default_factory=dict)  # answers by key of the event
    given: dict[tuple[str, str], str] = field(default_factory=dict)  # the event that gave a cookie

    @property
    def label(self) -> str:
        """The name of what happened: equal where it is, "" for nothing."""
        return f"{self.history.marks[-1]:016x}" if len(self.history) else ""


@dataclass(slots=True, eq=False)
class Session:
    """The cursor of one client. Two sessions share nothing."""

    name: str = "default"
    past: dict[str, Past] = field(default_factory=dict)  # by site, where anything happened that may decide
    given: set[str] = field(default_factory=set)  # sites that gave it a cookie
    noted: str | None = None  # the site at which the last lookup noted a miss
    found: Capture | None = None  # what the last lookup found
    matcher: Weigher | None = None  # that of the last lookup
    followed: dict[str, Followed] = field(default_factory=dict)
    # the same as of the last page: what it brings in comes in any order
    pages: dict[str, Followed] = field(default_factory=dict)
    served: deque[Capture] = field(default_factory=partial(deque, maxlen=REMEMBERED))
    told: dict[str, Counter[str]] = field(default_factory=dict)  # by site, what it said over web sockets
    # of Engine.IO's channels: answers to polls, places of handshakes and POSTs that were answered, and those that a web socket took on
    polls: dict[str, int] = field(default_factory=dict)
    sent: set[tuple[str, int]] = field(default_factory=set)
    upgraded: set[str] = field(default_factory=set)
    # the captures by which long polls were answered, and the keys of what it has written
    polled: set[tuple[str, int]] = field(default_factory=set)
    wrote: Counter[str] = field(default_factory=Counter)
    drawn: dict[str, str] = field(default_factory=dict)  # recorded ids, and those that it drew instead
    secrets: Recogniser | None = None  # what it has sent that was recorded by pseudonyms

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, {one.name: getattr(self, one.name) for one in fields(self)} | {"matcher": None}

    def answered(self, lookup: Answered) -> None:
        """Note that the answer of `lookup` was given."""
        capture = lookup.capture
        if capture is None:
            return
        self.repeated(site_of(capture.url), capture, followed_by(capture, lookup.request))
        if lookup.inert:
            return
        self.noted = None
        self.drawn.update(lookup.ids)
        if lookup.polled:
            self.polled.add(capture.place)
        elif capture.method not in SAFE_METHODS:
            self.wrote[capture.key] += 1
        channel, transport = channel_of(capture.url)
        if channel and capture.method == "GET" and transport == POLLING:
            self.polls[channel] = self.polls.get(channel, 0) + 1
        elif transport:
            self.sent.add(capture.place)
        if lookup.matcher is not None:
            lookup.matcher.note(self, lookup.request, capture, lookup.confidence)

    def repeated(self, site: str, capture: Capture, followed: Followed) -> None:
        """Note an answer from which nothing follows."""
        self.served.append(capture)
        self.followed[site] = followed
        if followed.page:
            self.pages[site] = followed

    def happened(self, request: Request, response: Response) -> None:
        """Note that a live server gave `response`; it replaces what the lookup before noted."""
        if self.found is not None:
            self.served.append(self.found)
        if self.matcher is not None:
            self.matcher.note_live(self, request, response)

    def opened(self, url: str) -> None:
        """Note that a web socket was opened."""
        self.upgraded.add(channel_of(url)[0])

    def draws(self, secrets: Mapping[str, str]) -> None:
        """Note secrets that its client drew itself, by the pseudonyms for which they stand from now on."""
        for name, secret in secrets.items():
            self.secrets = self.secrets or Recogniser()
            self.secrets.stand_in(secret, name)

    def says(self, site: str, word: str) -> None:
        """Note what was said over a web socket of `site`, which may change what that answers."""
        self.told.setdefault(site, Counter())[word] += 1
        self.at(site)

    def at(self, site: str) -> Past:
        """Return what happened at `site`, from now on noted."""
        found = self.past.get(site)
        if found is None:
            found = self.past[site] = Past()
        return found

    def following(self, site: str) -> Followed:
        """Return the recorded session that it follows on a site: at first that of its own name, if there is one."""
        return self.followed.get(site) or Followed(self.name, -1, "")
