"""Replies and the objects that they are kept in: sessions, settled requests, captures in memory."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import sqlite3
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stillweb.proxy.net.own_pages import NOTHING, page_fields
from stillweb.proxy.replay.http1 import CHUNKED, field_lines, head
from stillweb.proxy.replay.ledger import encode
from stillweb.proxy.replay.misses import MissedRequest
from stillweb.proxy.replay.polls import PollProgress
from stillweb.proxy.replay.response import with_ages
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.conditions import followed_by
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from stillweb.proxy.replay.response import PlannedResponse
    from stillweb.proxy.replay.websocket_player import Socket
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.evidence.confidence import Confidence
    from stillweb.snapshots.evidence.lookup import Session
    from stillweb.snapshots.snapshot import Snapshot

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def with_verdict_fields(
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


class DelayedReply(NamedTuple):
    """A withheld reply, to a client that is expected to leave or that polls for news.

    The client is sent `first_bytes` and expected to leave within `seconds`. `make()` returns the reply to a client that is
    still there then, or None to end its connection. For a poll, `wait_for_news()` is awaited instead; `on_leave()` is called if
    the client leaves before.
    """

    seconds: float
    make: Callable[[], Reply | None]
    first_bytes: bytes = b""
    wait_for_news: Callable[[], Awaitable[None]] | None = None
    on_leave: Callable[[], None] = lambda: None
    reset: bool = False  # True if the connection ends by a TCP reset

    async def wait(self) -> None:
        """Wait until the reply is due. Call `on_leave` if the client leaves before."""
        try:
            await (asyncio.sleep(self.seconds) if self.wait_for_news is None else self.wait_for_news())
        except asyncio.CancelledError:
            self.on_leave()
            raise


class Upgraded(Protocol):
    """The server's side of a live web socket."""

    def feed(self, data: bytes, /) -> None: ...
    def lost(self) -> None: ...


class Reply:
    """A reply to a request. `body` is whole, or `pieces()` yields it piece by piece.

    `length` None is only known after sending. `broke(error, sent)` must be called if the pieces fail before
    the end. `whole` caches the result of `wire`. `capture` is the capture that the reply was made from, if
    any. `trailers` follow the body. A reply with `held` is not sent itself. `pieces` are sent at `pace` bytes per
    second, if it is not 0; with `cut` they end before the body does.
    """

    __slots__ = (
        "body", "broke", "capture", "cut", "fields", "held", "length", "pace", "pieces", "status", "trailers",
        "upgraded", "whole", "wire_head",
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
        self.held: DelayedReply | None = None
        self.pace = 0.0
        self.cut = False
        # of a live web socket: takes the client's bytes; the server's are the pieces
        self.upgraded: Upgraded | None = None
        self.wire_head = head(status, reason, fields)
        self.whole: bytes | None = None

    @classmethod
    def of(
        cls,
        made: PlannedResponse,
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
        made.broke, made.held, made.upgraded = self.broke, self.held, self.upgraded
        return made

    def drop(self) -> None:
        """Give the reply up: its client left before it was made."""
        if self.held is not None:
            self.held.on_leave()

    def wire(self) -> bytes:
        """Return a keep-alive HTTP/1.1 response as bytes, cached. For whole bodies only."""
        if self.whole is None:
            self.whole = self.http1_bytes(b"")
        return self.whole

    def http1_bytes(self, extra: bytes, *, http10: bool = False) -> bytes:
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


class SessionState:
    """A session in the gateway: its replay state, its request count, its misses and its web sockets."""

    __slots__ = (
        "again", "broken", "clients", "faulted", "memos", "missed", "name", "named", "polls", "prefix",
        "seen", "seq", "session", "since", "sockets", "talks", "trusting", "waiting", "weight"
    )  # fmt: skip

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.seq = 0
        self.missed: list[MissedRequest] = []  # in the order in which they were answered
        self.faulted: list[str] = []  # verdicts of answers that faults changed, likewise
        self.weight = 0  # of both, in approximate bytes
        # number of web sockets opened so far, by the recorded ones that each may be: address, session and event
        self.sockets = Counter[tuple[tuple[str, str, int], ...]]()
        self.talks: list[Socket] = []  # the open web sockets
        self.named = set[str]()  # ids that clients received over web sockets
        # numbers of tunnels in which a browser aborted TLS, by authority and browser; `again`: those that it
        # tried again
        self.broken: dict[tuple[str, bytes], list[int]] = {}
        self.again: list[int] = []
        self.trusting: set[tuple[str, bytes]] = set()  # authorities and browsers of successful handshakes
        self.polls = PollProgress()
        self.waiting: set[asyncio.Future[None]] = set()  # polls that wait for news
        self.prefix = f'{{"session":{encode(name)},"seq":'
        # settled requests whose bytes name the session
        self.memos: dict[tuple[str, bytes], CachedCapture] = {}
        self.clients = 0  # open connections
        self.seen, self.since = -1, 0.0  # `seq` when a change was last seen, and the time of that

    def __reduce__(self) -> tuple[Any, ...]:
        gone = ("clients", "memos", "prefix", "seen", "since", "waiting")  # they go with the connections
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in gone}
        return SessionState, (self.name, self.session), (None, kept)

    def begin_anew(self, session: Session) -> None:
        """Reset all that decides answers. The request count goes on."""
        self.session, self.polls = session, PollProgress()
        self.sockets, self.talks, self.named = Counter(), [], set()
        self.wake_polls()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep the session in memory during work for it, even if its clients leave."""
        self.clients += 1
        try:
            yield
        finally:
            self.clients -= 1

    def note_socket(self, socket: Socket) -> None:
        """Note that the session has opened a web socket."""
        self.talks = [one for one in self.talks if not one.closed] + [socket]

    @property
    def judging(self) -> bool:
        """True while a message of its web sockets is being matched."""
        return any(one.judging for one in self.talks)

    def wrote(self, capture: Capture | None) -> None:
        """Tell the open web sockets that the session sent a write by HTTP: their servers may send messages about it."""
        for one in self.talks:
            one.note_write(None if capture is None else capture.key)

    async def wait_until(self, due: Callable[[], bool]) -> None:
        """Wait until `due()` is true. It is checked whenever the session moves."""
        while not due():
            future = asyncio.get_running_loop().create_future()
            self.waiting.add(future)
            try:
                await future
            finally:
                self.waiting.discard(future)

    def wake_polls(self) -> None:
        """Wake the waiting polls after the session has moved."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    def note_tls_success(self, browser: tuple[str, bytes]) -> int:
        """Note that TLS succeeded in a tunnel; return how often the same browser broke it off before.

        Chromium does so. The session's next ledger line names those attempts; until then they are misses as
        any other.
        """
        self.trusting.add(browser)
        again = self.broken.pop(browser, [])
        self.again += again
        return len(again)

    def with_retried_tunnels(self, tail: str) -> str:
        """Return the rest of a ledger line with the numbers of the tunnels that were tried again."""
        again, self.again = self.again, []
        return f',"again":{encode(again)}{tail}'


class Memo:
    """A request with a settled answer: the bytes to send, and the rest of its ledger line up to the time.

    `state` is the session that the request's bytes name; None within a tunnel, whose session counts. The memo
    holds for sessions that have changed nothing at `site`.
    """

    __slots__ = ("capture", "confidence", "followed", "site", "state", "tail", "wire")

    def __init__(
        self,
        wire: bytes,
        tail: str,
        state: SessionState | None,
        capture: Capture,
        site: str,
        request: Request,
        confidence: Confidence | None = None,
    ) -> None:
        self.wire = wire
        self.tail = tail
        self.state = state
        self.capture = capture
        self.followed = followed_by(capture, request)
        self.site = site
        self.confidence = confidence


class CachedCapture:
    """A capture in memory, with the replies made from it."""

    __slots__ = ("aged", "memos", "plain", "recorded", "replies", "response", "size")

    def __init__(self, response: Response, aged: bool = False) -> None:
        self.response = response
        self.aged = aged  # True if its cookies were given a Max-Age
        self.plain: bytes | None = None
        self.recorded: Request | None = None
        self.replies: dict[tuple[str, bool, bool, Confidence | None], Reply] = {}
        self.memos: list[tuple[str, bytes]] = []
        self.size = len(response.body) + 2048


REST = 5.0  # seconds without a request or an open connection after which a session is idle
AT_ONCE = 16  # sessions moved to the file before other work gets its turn


class SessionStates:
    """The sessions by name.

    `begin` creates the state of a new session; `forget` is called for each that leaves memory. `state` and
    `rest` are for the gateway's event loop; the other methods may be called from any thread.
    """

    def __init__(self, begin: Callable[[str], Session], forget: Callable[[SessionState], None]) -> None:
        self._begin = begin
        self._forget = forget
        self._awake: dict[str, SessionState] = {}
        self._names: dict[str, str] = {}  # aliases: the session that a name leads to
        self._file: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # guards the file, and moves between it and memory
        # the file may hold passwords that clients sent: no other and no later process can read them
        self._cipher = AESGCM(AESGCM.generate_key(128))
        self._nonces = itertools.count()

    def state(self, name: str) -> SessionState:
        """Return the session with that name; create it if it is new."""
        if self._names:
            name = self._names.get(name, name)
        state = self._awake.get(name)
        if state is None:
            with self._lock:
                state = self._load_idle(name)
                if state is None:
                    state = SessionState(name, self._begin(name))
                elif self._file is not None:
                    self._file.execute("DELETE FROM sessions WHERE name = ?", (name,))
                self._awake[name] = state
        return state

    def get(self, name: str) -> SessionState | None:
        """Return a session as it is now, None if it never sent a request."""
        name = self._names.get(name, name)
        with self._lock:
            return self._awake.get(name) or self._load_idle(name)

    def rename(self, name: str, session: str) -> None:
        """Make a name lead to another session."""
        self.state(session)
        self._names[name] = session

    def counts(self) -> dict[str, int]:
        """Return the number of requests by session."""
        with self._lock:
            rows = self._file.execute("SELECT name, seq FROM sessions").fetchall() if self._file else []
            return {**dict(rows), **{name: state.seq for name, state in list(self._awake.items())}}

    def move_idle_sessions(self) -> Iterator[None]:
        """Move idle sessions into the file, a few at a time. Raises sqlite3.Error if there is no room."""
        now = time.monotonic()
        moved = 0
        for state in list(self._awake.values()):
            if state.clients or state.seq != state.seen:
                state.seen, state.since = state.seq, now
            elif now - state.since > REST and not state.waiting:
                state.since = now  # if it can't be moved now, others get their turn first
                self._put(state)
                moved += 1
                if moved % AT_ONCE == 0:
                    yield

    def _put(self, state: SessionState) -> None:
        state.talks = []  # their connections are gone
        nonce = next(self._nonces).to_bytes(12)
        kept = nonce + self._cipher.encrypt(nonce, pickle.dumps(state, pickle.HIGHEST_PROTOCOL), None)
        with self._lock:
            if self._file is None:  # an unnamed file in the system's temporary folder, gone with this process
                self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._file.execute("PRAGMA journal_mode = OFF")
                self._file.execute("CREATE TABLE sessions (name TEXT PRIMARY KEY, seq INTEGER, state BLOB)")
            self._file.execute("INSERT INTO sessions VALUES (?, ?, ?)", (state.name, state.seq, kept))
            del self._awake[state.name]
        self._forget(state)

    def _load_idle(self, name: str) -> SessionState | None:
        if self._file is None:
            return None
        row = self._file.execute("SELECT state FROM sessions WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        state: SessionState = pickle.loads(self._cipher.decrypt(row[0][:12], row[0][12:], None))
        return state

    def __del__(self) -> None:
        if (file := getattr(self, "_file", None)) is not None:
            file.close()


PARSED = 3  # bytes in memory for each byte of a settled request: it is kept as it came, and parsed
MOST_MEMOS = 64  # variants of a request remembered for one capture
MOST_TUNNELS = 1024


class ReplyCache:
    """A cache of captures and of settled requests.

    `bytes` counts the captures in memory, at most `bound` unless there is only one.
    """

    def __init__(self, snapshot: Snapshot, bound: int) -> None:
        self.bytes = 0
        self.memos: dict[str, dict[bytes, Memo]] = {}  # by tunnel base, and by the bytes of the request
        self._snapshot = snapshot
        self._bound = bound
        self._hot: OrderedDict[tuple[str, int], CachedCapture] = OrderedDict()

    def memos_of(self, base: str) -> dict[bytes, Memo]:
        """Return the settled requests of a tunnel base ("" outside tunnels) by their bytes.

        Requests come and go in the returned dictionary.
        """
        return self.memos.setdefault(base, {})

    def remember(self, key: tuple[str, bytes], memo: Memo, cached: CachedCapture) -> None:
        """Keep a settled request as long as its capture, unless that has MOST_MEMOS already."""
        if len(cached.memos) < MOST_MEMOS:
            self.memos_of(key[0])[key[1]] = memo
            cached.memos.append(key)
            if memo.state is not None:
                memo.state.memos[key] = cached
            self.grow(cached, len(key[1]) * PARSED)

    def forget_state(self, state: SessionState) -> None:
        """Forget the settled requests whose bytes name a session."""
        for key, hot in state.memos.items():
            if self.memos_of(key[0]).pop(key[1], None) is not None:
                hot.memos.remove(key)
                self.grow(hot, -len(key[1]) * PARSED)
        state.memos.clear()

    def tidy(self) -> None:
        """Forget tunnels without settled requests when there are more than MOST_TUNNELS."""
        if len(self.memos) > MOST_TUNNELS:  # a connection may hold on to one, which then stays empty
            self.memos = {base: known for base, known in self.memos.items() if known or not base}

    def forget_memos(self) -> None:
        for known in self.memos.values():  # connections hold on to these dictionaries
            for memo in known.values():
                if memo.state is not None:
                    memo.state.memos.clear()
            known.clear()
        for hot in self._hot.values():
            for _, raw in hot.memos:
                self.grow(hot, -len(raw) * PARSED)
            hot.memos.clear()

    def load(self, capture: Capture) -> CachedCapture:
        """Return a capture, from memory if it is cached. Raises DamagedInput."""
        place = capture.place
        cached = self._hot.get(place)
        if cached is not None:
            self._hot.move_to_end(place)
            return cached
        response = self._snapshot.read(capture)
        headers = with_ages(response.headers, capture.timestamp)
        aged = headers is not response.headers
        cached = self._hot[place] = CachedCapture(
            replace(response, headers=headers) if aged else response, aged
        )
        self._count(cached.size)
        return cached

    def grow(self, cached: CachedCapture, by: int) -> None:
        """Count bytes that were derived from a capture and are cached with it."""
        cached.size += by
        self._count(by)

    def _count(self, by: int) -> None:
        """Count bytes, and evict the least recently used captures above the bound."""
        self.bytes += by
        while self.bytes > self._bound and len(self._hot) > 1:
            _, old = self._hot.popitem(last=False)
            self.bytes -= old.size
            for key in old.memos:
                memo = self.memos[key[0]].pop(key[1], None)
                if memo is not None and memo.state is not None:
                    memo.state.memos.pop(key, None)
