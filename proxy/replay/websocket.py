"""Web sockets in replay (RFC 6455): their frames, what a session is sent, and their ledger lines."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from wsproto.frame_protocol import LOCAL_ONLY_CLOSE_REASONS, CloseReason, FrameProtocol, Opcode, ParseFailed

from stillweb.proxy.replay.misses import body_entry, masked_url_of
from stillweb.proxy.replay.websocket_player import Player, Said, Secrets, found_at
from stillweb.snapshots.evidence.equality import LIMIT
from stillweb.snapshots.evidence.issued import shown_in, text_of
from stillweb.snapshots.evidence.spoken import STRAYED
from stillweb.snapshots.identity.numbering import named, plain
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.proxy.replay.answering import Answerer
    from stillweb.proxy.replay.faults import Met
    from stillweb.proxy.replay.replies import Line
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.request import Request

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
# how freeze.js marks the streams of a page that waits for them
STREAM = re.compile(r"[?&]stillweb-stream(?=#|$)")
MISSED = "stillweb-miss"  # sent to such a page for a message that was not recorded
REST = "stillweb-rest"  # sent to such a page when nothing more comes by itself
STEP = re.compile(r"stillweb-step (\d{1,9})")  # sent by such a page before each step, with the step's number


def wanted(request: Request) -> bool:
    """Return True if the request asks for a web socket."""
    return (
        (request.header("upgrade") or "").lower() == "websocket"
        and request.method == "GET"
        and bool(request.header("sec-websocket-key"))
    )


def handshake(request: Request, protocol: str) -> bytes:
    """Return the head of the 101 response."""
    key = (request.header("sec-websocket-key") or "").encode("latin-1", "replace")
    accept = base64.b64encode(hashlib.sha1(key + _GUID.encode()).digest()).decode()
    offered = [one.strip() for one in (request.header("sec-websocket-protocol") or "").split(",")]
    chosen = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol and protocol in offered else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n{chosen}\r\n"
    ).encode("latin-1")


class Socket:
    """The server side of one web socket.

    `write` takes bytes. `strayed(expected, said)` is called on a message that was not recorded, `heard()` on
    one that was. `doubted()` is called if the recorded conversations differ, and returns whether to go on.
    """

    def __init__(
        self,
        url: str,
        player: Player,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        strayed: Callable[[Said | None, Said], None],
        doubted: Callable[[], bool],
        heard: Callable[[], None] = lambda: None,
        *,
        secrets: Secrets | None = None,
        marked: bool = False,
    ) -> None:
        self._url = url
        self._player = player
        self._write = write
        self._close = close
        self._strayed = strayed
        self._told = heard
        self._doubted: Callable[[], bool] | None = doubted
        self._secrets = secrets or Secrets()
        self._marked = marked
        self._frames: Any = FrameProtocol(client=False, extensions=[])
        self._parts: list[Said] = []
        self.closed = False  # True once nothing more is sent

    def start(self) -> None:
        """Send the server's first messages."""
        self._say(self._player.opened())

    def feed(self, data: bytes) -> None:
        """Process bytes from the client."""
        if self.closed:
            return
        try:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                self._frame(frame)
        except ParseFailed as failure:
            self._end(int(failure.code), str(failure))

    def made(self, key: str | None) -> None:
        """Send the messages that follow a write of the client by HTTP; see `Player.made`."""
        if not self.closed:
            self._say(self._player.made(key))

    def _frame(self, frame: Any) -> None:
        if self.closed:
            return
        if frame.opcode is Opcode.CLOSE:
            code, reason = frame.payload
            self._end(int(code), reason or "")
        elif frame.opcode is Opcode.PING:
            self._write(self._frames.pong(frame.payload))
        elif frame.opcode is not Opcode.PONG:
            self._parts.append(frame.payload)
            if frame.message_finished:
                parts, self._parts = self._parts, []
                whole: Said
                if isinstance(parts[0], str):
                    whole = "".join(part for part in parts if isinstance(part, str))
                else:
                    whole = b"".join(part for part in parts if not isinstance(part, str))
                self._heard(whole)

    def _heard(self, said: Said) -> None:
        if self._marked and isinstance(said, str) and (step := STEP.fullmatch(said)):
            self._say(self._player.step(int(step[1])))
            return
        said = self._secrets.hidden(said)
        expected = self._player.expected()
        answer = self._player.client(self._url, said)
        if answer is None:
            self._strayed(expected, said)  # the socket stays open: what was recorded may still be said
            if self._marked:
                self._write(self._frames.send_data(MISSED, fin=True))
            return
        self._told()
        self._say(answer)

    def _say(self, messages: list[Said]) -> None:
        if self._player.ambiguous and self._doubted is not None:
            doubted, self._doubted = self._doubted, None
            if not doubted():
                self._end(1011, "stillweb: miss: what was recorded here differs")
                return
        for what in map(self._secrets.shown, messages):
            self._write(self._frames.send_data(what if isinstance(what, str) else bytes(what), fin=True))
        if self._player.close is not None:
            self._end(*self._player.close)
        elif self._marked:
            self._write(self._frames.send_data(REST, fin=True))

    def _end(self, code: int, reason: str) -> None:
        self.closed = True
        if code == CloseReason.NO_STATUS_RCVD:  # the frame named no code: a page is told 1005, not 1000
            self._write(self._frames.close())
        elif code in LOCAL_ONLY_CLOSE_REASONS:  # never sent (RFC 6455, 7.4.1)
            self._write(self._frames.close(CloseReason.NORMAL_CLOSURE))
        else:
            self._write(self._frames.close(code, reason))
        self._close()


BREATH = 0.02  # seconds for the client to receive a message before polls on other connections go on


class Talk:
    """A web socket that a session opened. `player` knows the messages to send."""

    def __init__(
        self, answerer: Answerer, request: Request, line: Line, player: Player, secrets: Secrets
    ) -> None:
        self.player = player
        self.secrets = secrets
        self.met: Met | None = None  # fault of the handshake
        self._answerer = answerer
        self._request = request
        self._line = line

    @classmethod
    def begin(cls, answerer: Answerer, request: Request, line: Line) -> Talk | None:
        """Open a recorded web socket and write its handshake to the ledger, unless a fault refuses it.

        Return None if no web socket was recorded at that address.
        """
        found = found_at(answerer.snapshot, request.url, partial(_given, answerer, line))
        if not found.conversations or not (found.sure or answerer.accept == "rule"):
            return None
        turn = line.sockets.get(request.url, 0)
        line.sockets[request.url] = turn + 1
        spoken = answerer.matcher.spoken
        given = partial(_named, answerer, line, {}) if answerer.accept == "rule" else None
        player = Player(
            found.conversations,
            turn,
            lambda one: spoken.written(one.url, one.session),
            given,
            line.named,
        )
        talk = cls(answerer, request, line, player, found.secrets)
        talk.met = met = answerer.meets(request, line)
        verdict = "exact" if found.sure else f"rule:{found.rule}"
        more: dict[str, Any] = {} if found.sure else {"ambiguous": True}
        if met is not None:
            if met.fault.replaces:
                return talk  # the refusal gets the ledger line
            answerer.faulted += 1
            more |= {"under": verdict, **met.members()}
            verdict = met.verdict
        talk._note(verdict, "websocket", 101, more or None)
        return talk

    def heard(self) -> None:
        """Process a recorded message of the client: it may change the site's answers and end polls."""
        line = self._line
        if word := self.player.word():
            line.session.says(site_of(self._request.url), word)
        line.session.opened(self._request.url)
        if line.waiting:  # polls on other connections; the client is to receive this answer first
            asyncio.get_running_loop().call_later(BREATH, line.moved)

    def doubted(self) -> bool:
        """Note that the sockets recorded there differ. Return False to refuse an ambiguous answer."""
        refused = self._answerer.accept.endswith("+unambiguous")
        more: dict[str, Any] = {"ambiguous": True}
        if refused:
            self._answerer.count(self._request, self._line, None)
            more |= {
                "why": "several web sockets were recorded there, and said different things",
                "nearest": [],
            }
        served = f"rule:{self.player.rules}" if self.player.rules else "exact"
        verdict, derived, status = ("miss", "", 0) if refused else (served, "websocket", 101)
        self._note(verdict, derived, status, more)
        return not refused

    def strayed(self, expected: Said | None, said: Said) -> None:
        """Note a client's message that was not recorded as a miss."""
        request = self._request
        self._answerer.count(request, self._line, None)
        self._line.session.says(site_of(request.url), STRAYED)
        sent = said.encode("utf-8", "replace") if isinstance(said, str) else said
        why = "a message of the web socket was not recorded" + (
            "; nothing more was said" if expected is None else "; another one was"
        )
        near: list[dict[str, Any]] = []
        if expected is not None:
            near = [
                {"method": "GET", "url": masked_url_of(request), "differs": ["the message"], "rule": None}
            ]
        more = {"why": why, "nearest": near}
        body = Request("POST", request.url, (("Content-Type", "application/json"),), sent)
        self._note("miss", "", 0, more | body_entry(body))

    def _note(self, verdict: str, derived: str, status: int, more: dict[str, Any] | None = None) -> None:
        answerer = self._answerer
        answerer.note(self._line, answerer.tail(self._request, None, verdict, derived, status, more=more))


def _given(answerer: Answerer, line: Line, value: str) -> bool:
    """Return True if a session was served a value, or requested a URL with it."""
    return any(
        value in one.url or shown_in(value, text_of(answerer.snapshot.read_start(one, LIMIT + 1)))
        for one in line.session.served
    )


def _named(answerer: Answerer, line: Line, known: dict[Capture, set[str]], value: str) -> bool:
    """Return True if an answer that a session was served names an id. `known` caches the ids read."""
    wanted = plain(value)
    for one in line.session.served:
        if one not in known:
            known[one] = named(one.url + "\n" + text_of(answerer.snapshot.read_start(one, LIMIT + 1)))
        if wanted in known[one]:
            return True
    return False
