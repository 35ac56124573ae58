"""What decides the choice among captures beside the captures themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.http.fragments import HARD
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.evidence.peeking import Peek
from stillweb.snapshots.evidence.sessions import Followed, Session
from stillweb.snapshots.evidence.spoken import Spoken, Words
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT
from stillweb.snapshots.secrets.redact import MASK
from stillweb.snapshots.states.answers import by_head, spoken_of
from stillweb.snapshots.states.conditions import Asked, SiteState, read, short
from stillweb.snapshots.states.slots import CREDENTIALS, choices_of, has_session, logins_of
from stillweb.snapshots.states.trails import Trail


@dataclass(slots=True)
class Situation:
    """All that decides beside the captures themselves."""

    request: Request
    key: Key
    state: SiteState | None
    followed: Followed | None
    read_request: Callable[[Capture], Request]
    read_response: Callable[[Capture], Response]
    peek: Peek
    page: Followed | None = None  # the same as of the last page, whatever it brought in
    name: str = ""  # of the session: where one of that name was recorded, its captures are the session's own
    given: bool = False  # whether the session was given a cookie by which the site knows it
    known: bool = False  # or came with one
    served: Sequence[Capture] = ()  # what it was given last, the latest at the end
    trail: Trail | None = None  # what it has asked before, None where that isn't known
    session: Session | None = None
    varies: bool = True  # whether another value of a Vary field is accepted
    spoken: Spoken | None = None  # what was said over web sockets of the site; None where nothing was
    worded: bool = False  # whether that tells which of several captures answers
    unsure: bool = False
    aside: bool = False  # whether the state left one capture only, or put others aside that may fit
    loose: bool = False  # whether a header field differs that did decide
    shared: bool = (
        False  # whether other sessions than the one of the chosen capture may be the one that is followed
    )
    guesses: Collection[
        tuple[str, str]
    ] = ()  # sites and sessions that are followed though it may be another one
    header: str | None = None  # the Vary field in which the chosen capture differs
    why: list[str] = field(default_factory=list)
    _identified: bool | None = None
    _cookies: dict[str, str] | None = None

    def said(self, capture: Capture) -> str:
        """What tells an answer from another one: status and body, or where a redirect leads, or what a HEAD or 304 is of."""
        if not by_head(capture):
            # a part that is all of a file says as much as the whole
            return f"{200 if capture.status == 206 else capture.status} {capture.digest}"
        answer = self.read_response(capture)
        return f"{capture.status} {answer.header('location')} {spoken_of(capture, answer)}"

    def told(self) -> Words:
        """What the session has said over web sockets of the site."""
        said = self.session.told.get(site_of(self.request.url)) if self.session is not None else None
        return said or {}

    def followed_all(self, capture: Capture) -> bool:
        """Whether that was asked before which a capture was recorded after, where that counts."""
        conditions = read(capture.state)
        past = conditions.past
        if any(conditions.asked) and not self._asked(capture, conditions.asked):
            return False
        if past is None:
            return True
        return self.trail is not None and self.trail.before(capture, past) == past.told

    def _asked(self, capture: Capture, told: Asked) -> bool:
        """Whether the session asked a site for what it must have, and for nothing that it must not."""
        if self.session is None:
            return not told.before
        ever, since = (self.session.asked(site_of(capture.url), since=since) for since in (False, True))
        if ever is None or since is None:
            return False
        return told.before <= ever and ever.isdisjoint(told.never) and since.isdisjoint(told.since)

    def stranger(self, capture: Capture) -> bool:
        """Whether the request's Authorization proves to be another one than a capture's."""
        asked, recorded = _who(self.request), self.who(capture)
        # as it was sent in an archive that another program made; of ours a pseudonym, which may be a renewed one
        return MASK in asked if PSEUDONYM_TEXT.search(recorded) else asked != recorded

    def who(self, capture: Capture) -> str:
        """The Authorization that a capture was asked for with."""
        return _who(self.read_request(capture))

    @staticmethod
    def bars(name: str, recorded: str, asked: str) -> bool:
        """Whether a field that differs bars a capture from standing in: a fragment's, or another password."""
        return name in HARD or (
            name == CREDENTIALS and asked.startswith("basic ") and recorded.startswith("basic")
        )

    def own(self, captures: list[Capture]) -> str:
        """The recorded session that this one follows among captures: of its own name, else of the last page or answer."""
        if any(c.session == self.name for c in captures):
            return self.name
        return self._leader.session if self._leader is not None else self.name

    @property
    def _leader(self) -> Followed | None:
        return self.page or self.followed

    @property
    def guessed(self) -> bool:
        """Whether it may follow another recorded session: it came to this one by an answer that was not sure, or several got."""
        if self._leader is None or self._leader.session == self.name:
            return False
        return (site_of(self.request.url), self._leader.session) in self.guesses

    @property
    def identified(self) -> bool:
        """Whether the request carries what the server knows its client by."""
        if self._identified is None:
            self._identified = has_session(self.request.headers)
        return self._identified

    @property
    def signed_in(self) -> bool:
        """Whether the request carries a login's cookie that no answer of this replay gave."""
        return not self.given and bool(logins_of(self.request.headers))

    @property
    def cookies(self) -> dict[str, str]:
        """The request's cookies that may be choices, names and values as 8 hex digits."""
        if self._cookies is None:
            choices = choices_of(self.request.headers)
            self._cookies = {short(name): short(value) for name, value in choices.items()}
        return self._cookies


def _who(request: Request) -> str:
    return request.header("authorization") or ""
