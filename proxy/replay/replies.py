"""Replies and the objects that they are kept in: sessions, settled requests, captures in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.proxy.net.own_pages import NOTHING, page_fields
from stillweb.proxy.replay.http1 import CHUNKED, field_lines, head
from stillweb.proxy.replay.ledger import encode
from stillweb.proxy.replay.misses import Missed
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.sessions import followed_by
from stillweb.snapshots.identity.cookies import logins_of
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from stillweb.proxy.replay.response import Answer
    from stillweb.proxy.replay.sockets import Socket
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.evidence.confidence import Confidence
    from stillweb.snapshots.evidence.sessions import Session


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def flagged(
    fields: Headers,
    verdict: str,
    capture: Capture | None,
    derived: str = "",
    doubted: bool = False,
    confidence: Confidence | None = None,
) -> Headers:
    """Return header fields with those that say how the answer was found.

    `doubted` marks an answer that the ledger calls ambiguous.
    """
    more = [("Stillweb-Verdict", verdict)]
    if capture is not None:
        more.append(("Stillweb-Capture", f"{capture.filename}:{capture.offset}"))
    if derived:
        more.append(("Stillweb-Derived", derived))
    if doubted:
        more.append(("Stillweb-Ambiguous", "true"))
    if confidence is not None:
        more.append(("Stillweb-Confidence", confidence.header()))
    return (*fields, *more)


class Held(NamedTuple):
    """A withheld reply, to a client that is expected to leave or that polls for news.

    The client is to leave within `seconds`, and is sent only the bytes `said`. `late()` returns the reply to
    a client that is still there then, or None to end its connection. For a poll, `until()` waits for news
    instead; `left()` is called if the client leaves before.
    """

    seconds: float
    late: Callable[[], Reply | None]
    said: bytes = b""
    until: Callable[[], Awaitable[None]] | None = None
    left: Callable[[], None] = lambda: None
    reset: bool = False  # True if the connection ends by a TCP reset

    async def over(self) -> None:
        """Wait until the reply is due. Call `left` if the client leaves before."""
        try:
            await (asyncio.sleep(self.seconds) if self.until is None else self.until())
        except asyncio.CancelledError:
            self.left()
            raise


class Reply:
    """A reply to a request. `body` is whole, or `pieces()` yields it piece by piece.

    `length` None is only known after sending. `broke(error, sent)` must be called if the pieces fail before
    the end. `whole` caches the result of `wire`. `capture` is the capture that the reply was made from, if
    any. `trailers` follow the body. A reply with `held` is not sent itself. `pieces` are sent at `pace` bytes per
    second, if it is not 0; with `cut` they end before the body does.
    """

    __slots__ = (
        "body", "broke", "capture", "cut", "fields", "held", "length", "pace", "pieces", "status", "trailers",
        "whole", "wire_head",
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
        self.pace = 0.0
        self.cut = False
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
        """Build a reply from an answer that was planned for a capture, with these fields."""
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

    def with_fields(self, more: Headers, pieces: Callable[[], Iterator[bytes]] | None = None) -> Reply:
        """Return the same reply with more header fields, and its body in `pieces` if these are given."""
        reason = self.wire_head.partition(b"\r\n")[0].split(b" ", 2)[2].strip().decode("latin-1")
        given = pieces or self.pieces
        made = Reply(
            self.status,
            reason,
            (*self.fields, *more),
            b"" if given is not None else self.body,
            pieces=given,
            length=self.length,
            capture=self.capture,
            trailers=self.trailers,
        )
        made.broke, made.held = self.broke, self.held
        return made

    def wire(self) -> bytes:
        """Return a keep-alive HTTP/1.1 response as bytes, cached. For whole bodies only."""
        if self.whole is None:
            self.whole = self.framed(b"")
        return self.whole

    def framed(self, extra: bytes, *, http10: bool = False) -> bytes:
        """Return an HTTP/1 response as bytes, with `extra` fields in its head. For whole bodies only."""
        if not self.trailers:
            return b"".join((self.wire_head, extra, b"\r\n", self.body))
        if http10:  # HTTP/1.0 has no trailers
            length = b"Content-Length: %d\r\n" % len(self.body)
            return b"".join((self.wire_head, extra, length, b"\r\n", self.body))
        chunk = b"%x\r\n%b\r\n" % (len(self.body), self.body) if self.body else b""
        return b"".join((self.wire_head, extra, CHUNKED, b"\r\n", chunk, self.last_chunk()))

    def last_chunk(self) -> bytes:
        """Return the end of a chunked body: the last chunk and the trailers."""
        return b"0\r\n%b\r\n" % field_lines(self.trailers)


def own_reply(
    request: Request,
    status: int,
    media: str,
    body: bytes,
    *more: tuple[str, str],
    policy: str = NOTHING,
) -> Reply:
    """Return a page of the gateway's own, under a content security policy; without its body for a HEAD."""
    fields = (("Content-Type", media), ("Content-Length", str(len(body))), *page_fields(policy), *more)
    return Reply(status, HTTPStatus(status).phrase, fields, b"" if request.method == "HEAD" else body)


def failure(request: Request, status: int, reason: str, why: str) -> Reply:
    """Return an error reply with the verdict miss, and the reason in its body."""
    body = f"stillweb: {why}\n".encode("utf-8", "replace")
    fields = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Stillweb-Verdict", "miss"),
    )
    return Reply(status, reason, fields, b"" if request.method == "HEAD" else body)


class Line:
    """A session in the gateway: its replay state, its request count, its misses and its web sockets."""

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
        self.weight = 0  # of the misses, in approximate bytes
        self.sockets: dict[str, int] = {}  # number of web sockets opened so far, by address
        self.talks: list[Socket] = []  # the open web sockets
        self.named = set[str]()  # the ids that clients were told over web sockets
        # numbers of tunnels in which a browser aborted TLS, by authority and browser; `again`: those that it
        # tried again
        self.broken: dict[tuple[str, bytes], list[int]] = {}
        self.again: list[int] = []
        self.trusting: set[tuple[str, bytes]] = set()  # authorities and browsers of successful handshakes
        self.waiting: set[asyncio.Future[None]] = set()  # polls that wait for news
        self.prefix = f'{{"session":{encode(name)},"seq":'
        self.memos: list[tuple[Hot, tuple[str, bytes]]] = []  # of requests whose bytes name the session
        self.clients = 0  # open connections
        self.seen, self.since = -1, 0.0  # `seq` when a change was last seen, and the time of that

    def __reduce__(self) -> tuple[Any, ...]:
        gone = ("clients", "memos", "prefix", "seen", "since", "waiting")  # they go with the connections
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in gone}
        return Line, (self.name, self.session), (None, kept)

    def begin_anew(self, session: Session) -> None:
        """Reset all that decides answers. The request count goes on."""
        self.session = session
        self.sockets, self.talks, self.named = {}, [], set()
        self.moved()

    def opened(self, socket: Socket) -> None:
        """Note that the session has opened a web socket."""
        self.talks = [one for one in self.talks if not one.closed] + [socket]

    def wrote(self, capture: Capture | None) -> None:
        """Tell the open web sockets that the session has written something, which servers may speak of."""
        for one in self.talks:
            one.made(None if capture is None else capture.key)

    async def until(self, due: Callable[[], bool]) -> None:
        """Wait until `due()` is true. It is checked whenever the session moves."""
        while not due():
            future = asyncio.get_running_loop().create_future()
            self.waiting.add(future)
            try:
                await future
            finally:
                self.waiting.discard(future)

    def moved(self) -> None:
        """Wake the waiting polls after the session has moved."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    def tried_again(self, browser: tuple[str, bytes]) -> int:
        """Note that TLS succeeded in a tunnel; return how often the same browser broke it off before.

        Chromium does so. The session's next ledger line names those attempts; until then they are misses as
        any other.
        """
        self.trusting.add(browser)
        again = self.broken.pop(browser, [])
        self.again += again
        return len(again)

    def told_again(self, tail: str) -> str:
        """Return the rest of a ledger line with the numbers of the tunnels that were tried again."""
        again, self.again = self.again, []
        return f',"again":{encode(again)}{tail}'


class Memo:
    """A request with a settled answer: the bytes to send, and the rest of its ledger line up to the time.

    `line` is the session that the request's bytes name; None within a tunnel, whose session counts. The memo
    holds for sessions that have changed nothing at `site`; with a login's cookie (`signed`), only for those
    that the site gave one.
    """

    __slots__ = ("capture", "confidence", "followed", "line", "signed", "site", "tail", "wire")

    def __init__(
        self,
        wire: bytes,
        tail: str,
        line: Line | None,
        capture: Capture,
        site: str,
        request: Request,
        confidence: Confidence | None = None,
    ) -> None:
        self.wire = wire
        self.tail = tail
        self.line = line
        self.capture = capture
        self.followed = followed_by(capture, request)
        self.site = site
        self.signed = bool(logins_of(request.headers))
        self.confidence = confidence


class Hot:
    """A capture in memory, and what was made from it."""

    __slots__ = ("aged", "memos", "plain", "recorded", "replies", "response", "size")

    def __init__(self, response: Response, aged: bool = False) -> None:
        self.response = response
        self.aged = aged  # True if its cookies were given a Max-Age
        self.plain: bytes | None = None
        self.recorded: Request | None = None
        self.replies: dict[tuple[str, bool, bool, Confidence | None], Reply] = {}
        self.memos: list[tuple[str, bytes]] = []
        self.size = len(response.body) + 2048
