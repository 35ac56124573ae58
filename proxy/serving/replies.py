"""What is kept ready to be sent: replies, sessions' lines, whole requests and hot captures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.proxy.serving.http1 import CHUNKED, field_lines, head
from stillweb.proxy.serving.ledger import encode
from stillweb.proxy.serving.misses import Missed
from stillweb.snapshots.capture import Response
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.matching.sessions import Change, followed_by, visits
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.states.conditions import short
from stillweb.snapshots.states.slots import SAFE_METHODS, logins_of

if TYPE_CHECKING:
    from stillweb.proxy.serving.responses import Answer
    from stillweb.proxy.serving.sockets import Socket
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.matching.sessions import Session


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def flagged(
    fields: Headers, verdict: str, capture: Capture | None, derived: str = "", doubted: bool = False
) -> Headers:
    """Header fields with those that say how the answer was found; `doubted` where the ledger calls it ambiguous."""
    more = [("Stillweb-Verdict", verdict)]
    if capture is not None:
        more.append(("Stillweb-Capture", f"{capture.filename}:{capture.offset}"))
    if derived:
        more.append(("Stillweb-Derived", derived))
    if doubted:
        more.append(("Stillweb-Ambiguous", "true"))
    return (*fields, *more)


class Held(NamedTuple):
    """A client is to leave within so many seconds, in which it is told nothing but `said`. `late()` is what to send to one that
    is still there then; None for the end of its connection. One that polls may stay `until` there is news instead; `left()` is
    called where it leaves before."""

    seconds: int
    late: Callable[[], Reply | None]
    said: bytes = b""
    until: Callable[[], Awaitable[None]] | None = None
    left: Callable[[], None] = lambda: None

    async def over(self) -> None:
        """Returns when the client has not left."""
        try:
            await (asyncio.sleep(self.seconds) if self.until is None else self.until())
        except asyncio.CancelledError:
            self.left()
            raise


class Reply:
    """What to send. `body` is whole, or `pieces()` gives it bit by bit; `length` None is found out by sending.

    `broke(error, sent)` is to be called where the pieces can't be had to the end. `whole` is what `wire` has made.
    `capture` is what it was made of, if it was of one. `trailers` stand behind the body. Of what is `held` nothing is
    to be sent.
    """

    __slots__ = (
        "body", "broke", "capture", "fields", "held", "length", "pieces", "status", "trailers", "whole",
        "wire_head",
    )  # fmt: skip

    def __init__(
        self,
        status: int,
        reason: str,
        fields: Headers,
        body: bytes = b"",
        *,
        pieces: Callable[[], Iterator[bytes]] | None = None,
        length: int | None = 0,
        capture: Capture | None = None,
        trailers: Headers = (),
    ) -> None:
        self.status = status
        self.fields = fields
        self.body = body
        self.pieces = pieces
        self.length = length if pieces is not None else len(body)
        self.capture = capture
        self.trailers = trailers
        self.broke: Callable[[Exception, int], None] | None = None
        self.held: Held | None = None
        self.wire_head = head(status, reason, fields)
        self.whole: bytes | None = None

    @classmethod
    def of(
        cls,
        made: Answer,
        fields: Headers,
        capture: Capture,
        body: bytes = b"",
        *,
        pieces: Callable[[], Iterator[bytes]] | None = None,
    ) -> Reply:
        """What is made of a capture, with these fields."""
        return cls(
            made.status,
            made.reason,
            fields,
            body,
            pieces=pieces,
            length=made.length,
            capture=capture,
            trailers=made.trailers,
        )

    def wire(self) -> bytes:
        """A kept-alive HTTP/1.1 answer as one piece, always the same one; for whole bodies."""
        if self.whole is None:
            self.whole = self.framed(b"")
        return self.whole

    def framed(self, extra: bytes, *, http10: bool = False) -> bytes:
        """An HTTP/1 answer as one piece, with `extra` fields in its head; for whole bodies."""
        if not self.trailers:
            return b"".join((self.wire_head, extra, b"\r\n", self.body))
        if http10:  # which has no place for trailers
            length = b"Content-Length: %d\r\n" % len(self.body)
            return b"".join((self.wire_head, extra, length, b"\r\n", self.body))
        chunk = b"%x\r\n%b\r\n" % (len(self.body), self.body) if self.body else b""
        return b"".join((self.wire_head, extra, CHUNKED, b"\r\n", chunk, self.last_chunk()))

    def last_chunk(self) -> bytes:
        """What ends a body that is sent in chunks."""
        return b"0\r\n%b\r\n" % field_lines(self.trailers)


def failure(request: Request, status: int, reason: str, why: str) -> Reply:
    """The answer that says that there can be none."""
    body = f"stillweb: {why}\n".encode("utf-8", "replace")
    fields = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Stillweb-Verdict", "miss"),
    )
    return Reply(status, reason, fields, b"" if request.method == "HEAD" else body)


class Line:
    """A session as the gateway has it: its replay state, and how many requests it made."""

    __slots__ = (
        "again",
        "broken",
        "clients",
        "memos",
        "missed",
        "name",
        "named",
        "prefix",
        "seen",
        "seq",
        "session",
        "since",
        "sockets",
        "talks",
        "trusting",
        "waiting",
        "weight",
    )

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.seq = 0
        self.missed: list[Missed] = []  # in the order in which they were answered
        self.weight = 0  # of those, in about bytes
        self.sockets: dict[str, int] = {}  # how many web sockets it has opened, by address
        self.talks: list[Socket] = []  # those that are open
        self.named = set[str]()  # the ids that they were told
        # numbers of tunnels in which a browser broke TLS off, by where they led and which it was; those that were tried again
        self.broken: dict[tuple[str, bytes], list[int]] = {}
        self.again: list[int] = []
        self.trusting: set[tuple[str, bytes]] = set()  # where it did not
        self.waiting: set[asyncio.Future[None]] = set()  # polls, for something to be said to them
        self.prefix = f'{{"session":{encode(name)},"seq":'
        self.memos: list[tuple[Hot, tuple[str, bytes]]] = []  # of requests that name the session themselves
        self.clients = 0  # connections that are open
        self.seen, self.since = -1, 0.0  # `seq` when it was last seen to move, and when that was

    def __reduce__(self) -> tuple[Any, ...]:
        gone = ("clients", "memos", "prefix", "seen", "since", "waiting")  # with the connections
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in gone}
        return Line, (self.name, self.session), (None, kept)

    def begin_anew(self, session: Session) -> None:
        """All that decides what is answered is as at its start; its count of requests goes on."""
        self.session = session
        self.sockets, self.talks, self.named = {}, [], set()
        self.moved()

    def opened(self, socket: Socket) -> None:
        """A web socket of the session is open."""
        self.talks = [one for one in self.talks if not one.closed] + [socket]

    def wrote(self, capture: Capture | None) -> None:
        """The session has written something, which servers may speak of."""
        for one in self.talks:
            one.made(None if capture is None else capture.key)

    async def until(self, due: Callable[[], bool]) -> None:
        """Returns when something is so that hangs on what the session has said."""
        while not due():
            future = asyncio.get_running_loop().create_future()
            self.waiting.add(future)
            try:
                await future
            finally:
                self.waiting.discard(future)

    def moved(self) -> None:
        """The session has said something."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    def unanswered(self, request: Request, why: str) -> None:
        """A request may have changed what its site answers, and had no answer: what the site knows is not known."""
        if request.method not in SAFE_METHODS:
            self.session.missed(site_of(request.url), Change(short(why), "", True), request)

    def tried_again(self, browser: tuple[str, bytes]) -> int:
        """TLS came about in a tunnel: how many the same browser broke off before, as Chromium does.

        The next line of the session says which; until then those are misses as any other.
        """
        self.trusting.add(browser)
        again = self.broken.pop(browser, [])
        self.again += again
        return len(again)

    def told_again(self, tail: str) -> str:
        """The rest of a ledger line, with what it says of tunnels that were tried again."""
        again, self.again = self.again, []
        return f',"again":{encode(again)}{tail}'


class Memo:
    """A whole request whose answer is settled: what to send, and the rest of its ledger line up to the time.

    `line` is the session that its bytes name, None within a tunnel, whose session counts. It holds for sessions
    that have changed nothing at `site`; with a login's cookie, for those that it gave one.
    """

    __slots__ = ("capture", "followed", "line", "signed", "site", "tail", "visit", "wire")

    def __init__(
        self, wire: bytes, tail: str, line: Line | None, capture: Capture, site: str, request: Request
    ) -> None:
        self.wire = wire
        self.tail = tail
        self.line = line
        self.capture = capture
        self.followed = followed_by(capture, request)
        self.visit = visits(capture)
        self.site = site
        self.signed = bool(logins_of(request.headers))


class Hot:
    """A capture in memory, and what has been made from it."""

    __slots__ = ("aged", "memos", "plain", "recorded", "replies", "response", "size")

    def __init__(self, response: Response, aged: bool = False) -> None:
        self.response = response
        self.aged = aged  # whether its cookies were given an age
        self.plain: bytes | None = None
        self.recorded: Request | None = None
        self.replies: dict[tuple[str, bool, bool], Reply] = {}
        self.memos: list[tuple[str, bytes]] = []
        self.size = len(response.body) + 2048
