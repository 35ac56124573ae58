"""A session in replay: what it has told each site so far, and which recorded session it follows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from mimetypes import guess_type
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http.fragments import asks_for_page
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.evidence.polling import POLLING, channel_of
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import ANY, Effect, Held, SiteState, read
from stillweb.snapshots.states.plain import static_mime
from stillweb.snapshots.states.slots import SAFE_METHODS, has_session
from stillweb.snapshots.states.trails import KEY, Trail

if TYPE_CHECKING:
    from stillweb.snapshots.evidence.recognising import Recogniser

REMEMBERED = 200  # captures served last, in which issued values are looked up
VISITS = 2000  # exchanges remembered that may have changed something by being asked; with more none is sure


class Answered(Protocol):
    """What a session is told of a lookup. `inert`: nothing follows from it; `ambiguous`: what does is not sure; `shared`: what
    was recorded by other sessions says the same; `others`: effects that it may have had instead of none; `ids`: those that its client
    drew, by the recorded ones; `polled`: it is a long poll.
    """

    @property
    def capture(self) -> Capture | None: ...
    @property
    def request(self) -> Request: ...
    @property
    def site(self) -> str: ...
    @property
    def inert(self) -> bool: ...
    @property
    def ambiguous(self) -> bool | None: ...
    @property
    def shared(self) -> bool: ...
    @property
    def others(self) -> tuple[Effect, ...]: ...
    @property
    def polled(self) -> bool: ...
    @property
    def ids(self) -> Mapping[str, str]: ...


class Change(NamedTuple):
    """A change that was not recorded: from here on nothing is known of its slot."""

    slot: str
    value: str
    strong: bool


class Followed(NamedTuple):
    """The recorded session that a replayed one follows on a site, and how far it is. `page`: as a browser's page."""

    session: str
    end: int
    timestamp: str
    page: bool = False


def followed_by(capture: Capture, request: Request) -> Followed:
    """What a session follows that was answered by a capture."""
    page = "html" in capture.mime and asks_for_page(request)
    return Followed(capture.session, capture.end, capture.timestamp, page)


def visits(capture: Capture) -> bool:
    """Whether what was asked before may hang on it; not on a plain file's."""
    return not capture.state.startswith(ANY)


class Session:
    """The cursor of one client. Cheap to make; two sessions share nothing.

    `version` grows with every change of what is known of a server's state.
    """

    __slots__ = (
        "drawn",
        "followed",
        "given",
        "guesses",
        "lengthy",
        "lost",
        "name",
        "pages",
        "polled",
        "polls",
        "secrets",
        "sent",
        "served",
        "sites",
        "strays",
        "told",
        "trails",
        "upgraded",
        "version",
        "wrote",
    )

    def __init__(self, name: str = "default") -> None:
        self.name = name
        self.version = 0
        self.given: set[str] = set()  # sites that gave it a cookie to be known by
        self.lost: set[str] = set()  # sites that may have given it one with an answer that was not recorded
        self.sites: dict[str, SiteState] = {}
        self.followed: dict[str, Followed] = {}
        # the same as of the last page: what it brings in comes in any order
        self.pages: dict[str, Followed] = {}
        # by site and recorded session, those that it follows though it may as well be another one: whether since an
        # answer that was not sure, or since one that several gave
        self.guesses: dict[tuple[str, str], bool] = {}
        self.served: deque[Capture] = deque(maxlen=REMEMBERED)
        self.trails: dict[str, Trail] = {}  # by site, what was served that is no plain file
        self.lengthy: set[str] = set()  # sites with more of that than is remembered
        self.strays: dict[str, set[str]] = {}  # by site, the names of what was asked for and not recorded so
        self.told: dict[str, Counter[str]] = {}  # by site, what it said over web sockets (spoken.py)
        # of Engine.IO's channels: answers to polls, places of handshakes and POSTs that were answered, and those that a web socket took on
        self.polls: dict[str, int] = {}
        self.sent: set[tuple[str, int]] = set()
        self.upgraded: set[str] = set()
        # the captures by which long polls were answered, and the keys of what it has written (hanging.py)
        self.polled: set[tuple[str, int]] = set()
        self.wrote: Counter[str] = Counter()
        # ids that were recorded, and those that it drew in their places (drawing.py)
        self.drawn: dict[str, str] = {}
        self.secrets: Recogniser | None = None  # what it has sent that was recorded by pseudonyms

    def answered(self, lookup: Answered) -> None:
        """To be called when the answer of a lookup was given: moves the state and the cursors."""
        capture = lookup.capture
        if capture is None:
            return
        site = lookup.site or site_of(capture.url)
        if lookup.ambiguous or lookup.shared:
            if self.following(site).session != capture.session:
                self.guesses[site, capture.session] = bool(lookup.ambiguous)
        elif self.guesses.get((site, capture.session)) is False:
            del self.guesses[site, capture.session]  # only that one has asked this
        self.repeated(site, capture, followed_by(capture, lookup.request), visits(capture))
        self.drawn.update(lookup.ids)
        if lookup.polled:
            self.polled.add(capture.place)
        elif capture.method not in SAFE_METHODS:
            self.wrote[capture.key] += 1
        if lookup.inert:
            return
        channel, transport = channel_of(capture.url)
        if channel and capture.method == "GET" and transport == POLLING:
            self.polls[channel] = self.polls.get(channel, 0) + 1
        elif transport:
            self.sent.add(capture.place)
        conditions = read(capture.state)
        if conditions.keyed and site in self.sites:
            self._meet(site, lookup.request)
        if conditions.begins:
            self.given.add(site)
        if conditions.sequence is not None:
            self._site(site).given(conditions.sequence, conditions)
        if site in self.sites:
            self.sites[site].unknown -= conditions.sets
        if conditions.effect is not None:
            self._site(site).apply(conditions.effect, doubted=bool(lookup.ambiguous))
            self.version += 1
        for effect in lookup.others:
            self._site(site).may_apply(effect)
            self.version += 1

    def opened(self, url: str) -> None:
        """A web socket was opened."""
        self.upgraded.add(channel_of(url)[0])

    def following(self, site: str) -> Followed:
        """The recorded session that it follows on a site: at first that of its own name, if there is one."""
        return self.followed.get(site) or Followed(self.name, -1, "")

    def known(self, site: str) -> bool:
        """Whether a site that knows its clients by a cookie surely doesn't know it where it comes without."""
        return site not in self.lost

    def repeated(self, site: str, capture: Capture, followed: Followed, visit: bool) -> None:
        """`answered` for a lookup from which nothing follows, with what it comes to known beforehand."""
        self.served.append(capture)
        if visit and site not in self.lengthy:
            trail = self.trails.get(site)
            if trail is None:
                trail = self.trails[site] = Trail()
            trail.visits.append(capture)
            if len(trail.visits) >= VISITS:
                self.lengthy.add(site)
        self.followed[site] = followed
        if followed.page:
            self.pages[site] = followed

    def trail(self, site: str) -> Trail | None:
        """What a site was asked that may have changed something by its being asked alone; None where it isn't known."""
        found = self.trails.get(site) or Trail()
        return None if site in self.strays or site in self.lengthy else found

    def asked(self, site: str, *, since: bool = False) -> set[str] | None:
        """The names of all that a site was asked for, answered or not, or `since` anything was written; None where that
        isn't known.
        """
        if site in self.lengthy:
            return None
        found = self.trails.get(site)
        names = found.names(since=since) if found is not None else set()
        strays = self.strays.get(site)
        return names | strays if strays else names

    def strayed(self, site: str, request: Request, key: str) -> None:
        """A request was not in the snapshot: it may have changed something, unless its path is that of a file."""
        name = request.url.partition("?")[0].rpartition("/")[2]
        kind = guess_type(f"/{name}")[0] or ""  # of a whole URL Python 3.13 may raise
        if request.method not in ("GET", "HEAD") or not static_mime(kind):
            self.strays.setdefault(site, set()).add(key[:KEY])

    def says(self, site: str, word: str) -> None:
        """Something was said over a web socket of a site, which may have changed what that answers."""
        self.told.setdefault(site, Counter())[word] += 1
        self._site(site)
        self.version += 1

    def _meet(self, site: str, request: Request) -> None:
        """A client that comes without the cookie it was given is a new one to the server."""
        if site in self.given and site not in self.lost and not has_session(request.headers):
            del self.sites[site]
            self.version += 1

    def missed(
        self, site: str, change: Change | None, request: Request, cookies: frozenset[str] = frozenset()
    ) -> None:
        """A request was not in the snapshot that may have changed what the site answers from now on.

        `cookies` are those that its answer would have set.
        """
        state = self._site(site)
        state.unknown |= cookies
        if change is not None:
            if not has_session(request.headers):
                self.lost.add(site)
            state.lose(change.slot, Held(f"!{change.value}", change.strong))
        self.version += 1

    def _site(self, site: str) -> SiteState:
        state = self.sites.get(site)
        if state is None:
            state = self.sites[site] = SiteState()
        return state

    def describe(self, site: str) -> str:
        """The state of a site, as text for the ledger."""
        state = self.sites.get(site)
        return str(state) if state is not None else ""
