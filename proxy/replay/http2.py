"""HTTP/2 inside a tunnel, for hosts that were recorded with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Protocol

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import Frame, GoAwayFrame

from stillweb.proxy.net.addresses import target_text
from stillweb.proxy.net.huffman import LinearHuffman
from stillweb.proxy.net.turns import PREFACE, TURN, Frames, http2_size
from stillweb.proxy.replay import bad_request
from stillweb.proxy.replay.http1 import (
    MAX_BODY,
    MAX_HEAD,
    TOO_MANY,
    BadRequest,
    field_bytes,
    too_many,
)
from stillweb.proxy.replay.hub import Hub
from stillweb.proxy.replay.replies import DelayedReply, Reply, SessionState
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.words import pluralize

MAX_STREAMS = 128
WINDOW = 1 << 20
_OWN = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
# The exceptions of h2 for a stream that the client has reset, perhaps in the same packet: h2 closes the
# stream, and forgets it once a later one is opened.
_GONE = (
    h2.exceptions.StreamClosedError,
    h2.exceptions.NoSuchStreamError,
    h2.exceptions.StreamIDTooLowError,
)


Fields = list[tuple[bytes, bytes]]


class Wire(Protocol):
    """The connection that carries the HTTP/2 bytes."""

    hub: Hub

    @property
    def paused(self) -> bool: ...
    def write(self, data: bytes, /) -> None: ...
    def read_on(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class _Incoming:
    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields
        self.body = bytearray()  # empty frames without an end take no memory


class _Outgoing:
    """A response that is being sent: the rest of its body, and its trailers."""

    def __init__(self, reply: Reply) -> None:
        self.data = memoryview(reply.body)
        self.pieces = reply.pieces() if reply.pieces is not None else None
        self.length = reply.length
        self.broke = reply.broke
        self.trailers = _spelled(reply.trailers)
        self.pace, self.cut = reply.pace, reply.cut
        self.sent = 0  # bytes of the pieces
        self.fetching: asyncio.Task[None] | None = None


class _Goodbye(h2.events.Event):
    """A graceful GOAWAY: no new requests, but the pending ones are still answered (RFC 9113, 6.8)."""


class _Connection(h2.connection.H2Connection):
    """An h2 connection that survives a graceful GOAWAY; h2 takes every GOAWAY for the end."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[h2.events.Event]]:
        ended: tuple[list[Frame], list[h2.events.Event]] = ([], [_Goodbye()])
        return super()._receive_goaway_frame(frame) if frame.error_code else ended


class Http2:
    """The server side of one HTTP/2 connection."""

    def __init__(self, connection: Wire, state: SessionState, authority: str) -> None:
        self._connection = connection
        self._hub = connection.hub
        self._state = state
        self._authority = authority
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self._h2 = _Connection(config)
        self._h2.encoder.huffman_coder = LinearHuffman()
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD,
            },
        )
        # h2 takes this limit over only when the settings change later
        self._h2.decoder.max_header_list_size = MAX_HEAD
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(16 * WINDOW)
        self._incoming: dict[int, _Incoming] = {}
        self._outgoing: dict[int, _Outgoing] = {}
        self._waiting: set[int] = set()  # streams whose clients wait for an answer
        self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        # tasks of streams whose reply is withheld: their clients are expected to leave, or poll for news
        self._held: dict[int, asyncio.Task[None]] = {}
        self._goodbye = False
        self._frames = Frames(http2_size, PREFACE)
        self._arrived: deque[bytes] = deque()  # pieces that no turn has come to yet
        self._flush()

    @property
    def is_behind(self) -> bool:
        """Return True while bytes wait for another turn: no more are to be read."""
        return bool(self._arrived)

    def lost(self) -> None:
        """Send no more after the connection is lost. What was read is answered, for session and ledger."""
        self._lost = True
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        self._outgoing.clear()

    def feed(self, data: bytes) -> None:
        """Process decrypted bytes from the client, in turns with other connections."""
        waiting = self.is_behind
        self._arrived.extend(self._frames.cut(data))
        if not waiting:
            self._take_turn()

    def _take_turn(self) -> None:
        end = time.monotonic() + TURN
        while self._arrived:
            piece = self._arrived.popleft()
            try:
                # frame by frame: it returns no events for bytes that contain an error
                events = self._h2.receive_data(piece)
            except h2.exceptions.ProtocolError as error:
                self._hub.malformed += 1
                self._hub.answerer.tunnel_failed(
                    self._authority, self._state, f"HTTP/2 with the client failed: {error}"
                )
                self._arrived.clear()
                self._flush()
                self._connection.close()
                return
            try:
                for event in events:
                    self._event(event)
                if any(isinstance(event, h2.events.StreamEnded) for event in events):
                    self.pump()  # after an error or a GOAWAY nothing can be sent any more
            except h2.exceptions.ProtocolError as error:  # ours: the client's errors were caught above
                self._hub.failed(error)
                self._arrived.clear()
                self._connection.abort()
                return
            if self._arrived and time.monotonic() > end:
                asyncio.get_running_loop().call_soon(self._next_turn)
                break
        self.pump()

    def _next_turn(self) -> None:
        if self._arrived:
            self._take_turn()
            if not self.is_behind:
                self._connection.read_on()

    def _event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                fields = [
                    (_text(n), target_text(v) if n == b":path" else _text(v)) for n, v in event.headers or []
                ]
                if too_many(fields):
                    self._refuse(_stream(event), _Incoming(fields), BadRequest(TOO_MANY, 431))
                else:
                    self._incoming[_stream(event)] = _Incoming(fields)
                if event.stream_ended is None and dict(fields).get("expect", "").lower() == "100-continue":
                    with contextlib.suppress(*_GONE):
                        self._h2.send_headers(_stream(event), [(b":status", b"100")])
            case h2.events.DataReceived():
                stream, data = _stream(event), event.data or b""
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                request = self._incoming.get(stream)
                if request is not None:
                    request.body += data
                    # the limit is for all requests that arrive at once
                    if sum(len(one.body) for one in self._incoming.values()) > MAX_BODY:
                        del self._incoming[stream]
                        bad = BadRequest("the body of the request is too long", 413)
                        self._refuse(stream, request, bad)
            case h2.events.StreamEnded():
                self._ended(_stream(event))
            case h2.events.StreamReset():
                self._incoming.pop(_stream(event), None)
                self._waiting.discard(_stream(event))
                out = self._outgoing.pop(_stream(event), None)
                if out is not None and out.fetching is not None:
                    out.fetching.cancel()
                if (held := self._held.pop(_stream(event), None)) is not None:
                    held.cancel()
            case _Goodbye():
                self._goodbye = True
            case h2.events.ConnectionTerminated():
                if not self._outgoing and not self._tasks:
                    self._connection.close()

    def _refuse(self, stream: int, incoming: _Incoming, bad: BadRequest) -> None:
        named = dict(incoming.fields)
        target = f"https://{named.get(':authority') or self._authority}{named.get(':path', '/')}"
        self._hub.malformed += 1
        bad_request.note_refused(
            self._hub.answerer, self._state, named.get(":method", ""), target, bad, len(incoming.body), 0
        )
        self._reset(stream, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)

    def _ended(self, stream: int) -> None:
        incoming = self._incoming.pop(stream, None)
        if incoming is None:
            return
        pseudo = {n: v for n, v in incoming.fields if n.startswith(":")}
        headers = [(n, v) for n, v in incoming.fields if not n.startswith(":")]
        cookies = [v for n, v in headers if n == "cookie"]
        if len(cookies) > 1:  # RFC 9113, 8.2.3: cookie crumbs are one field in HTTP/1.1
            headers = [(n, v) for n, v in headers if n != "cookie"] + [("cookie", "; ".join(cookies))]
        host = pseudo.get(":authority") or next((v for n, v in headers if n == "host"), self._authority)
        path = pseudo.get(":path", "/").partition("#")[0]
        url = f"{pseudo.get(':scheme', 'https')}://{host}{path if path.startswith('/') else '/' + path}"
        if not any(n == "host" for n, _ in headers):
            headers.insert(0, ("Host", host))
        request = Request(pseudo.get(":method", "GET"), url, tuple(headers), bytes(incoming.body))
        if not self._lost:
            self._waiting.add(stream)
        hub = self._hub
        name = host.rpartition(":")[0].lower() if host.rpartition(":")[2].isdigit() else host.lower()
        if name == hub.own_host:
            self._send(stream, hub.own_page(request))
        elif name in hub.answerer.virtual_hosts:
            self._start(self._virtual(stream, request, name))
        elif hub.answerer.slow(request) or hub.answerer.waits(request, self._state):
            self._held[stream] = self._start(self._answer_later(stream, request))
        else:
            self._reply(stream, hub.answerer.answer(request, self._state))

    def _reply(self, stream: int, reply: Reply) -> None:
        if stream not in self._waiting:
            reply.drop()
        elif reply.held is not None:
            self._held[stream] = self._start(self._hold(stream, reply.held))
        else:
            self._send(stream, reply)

    async def _hold(self, stream: int, held: DelayedReply) -> None:
        await held.wait()
        del self._held[stream]
        late = held.make()
        if late is None:
            self._reset(stream, h2.errors.ErrorCodes.CANCEL)
        else:
            self._reply(stream, late)
        self.pump()

    async def _answer_later(self, stream: int, request: Request) -> None:
        if self._hub.answerer.slow(request):
            await self._hub.answerer.prepare(request, self._state)
        await self._hub.answerer.due(request, self._state, left=stream not in self._waiting)
        self._held.pop(stream, None)
        self._reply(stream, self._hub.answerer.answer(request, self._state))
        self.pump()

    async def _virtual(self, stream: int, request: Request, name: str) -> None:
        self._reply(stream, await self._hub.virtual(request, self._state, name))
        self.pump()

    def _start(self, coroutine: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._leave()
        if not task.cancelled() and task.exception() is not None:
            self._hub.failed(task.exception())
            self._connection.abort()

    def _send(self, stream: int, reply: Reply) -> None:
        status = (b":status", str(reply.status).encode())
        empty = reply.pieces is None and not reply.body and not reply.trailers
        self._waiting.discard(stream)
        try:
            self._h2.send_headers(stream, [status, *_spelled(reply.fields)], end_stream=empty)
        except _GONE:
            return  # the client has reset the stream
        if not empty:
            self._outgoing[stream] = _Outgoing(reply)

    def pump(self) -> None:
        """Send as much as the flow-control windows and the transport allow."""
        for stream in list(self._outgoing):
            try:
                self._pump_stream(stream, self._outgoing[stream])
            except _GONE:
                self._outgoing.pop(stream, None)
        self._flush()
        self._leave()

    def _leave(self) -> None:
        """Close the connection once a client that sent a graceful GOAWAY has all its answers."""
        if self._goodbye and not (self._incoming or self._outgoing or self._tasks):
            self._connection.close()

    def _pump_stream(self, stream: int, out: _Outgoing) -> None:
        while not self._connection.paused:
            if not out.data:
                if out.pieces is None:
                    if out.trailers:
                        self._h2.send_headers(stream, out.trailers, end_stream=True)
                    else:
                        self._h2.end_stream(stream)
                    self._outgoing.pop(stream, None)
                elif out.fetching is None:
                    out.fetching = self._start(self._fetch(stream, out, out.pieces))
                return
            room = min(
                self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(out.data)
            )
            if room <= 0:
                return
            piece, out.data = out.data[:room], out.data[room:]
            last = not out.data and out.pieces is None and not out.trailers
            self._h2.send_data(stream, piece.tobytes(), end_stream=last)
            if last:
                self._outgoing.pop(stream, None)
                return

    async def _fetch(self, stream: int, out: _Outgoing, pieces: Iterator[bytes]) -> None:
        """Fetch the next piece of a large body."""
        try:
            piece = await self._hub.next_piece(pieces)
            if out.pace and out.sent:
                await asyncio.sleep(len(piece or b"") / out.pace)
            out.sent += len(piece or b"")
            if piece is None and out.cut:
                self._outgoing.pop(stream, None)
                self._reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
                self._flush()
                return
            if piece is None and out.length is not None and out.sent != out.length:
                raise ValueError(f"a body of {pluralize(out.length, 'byte')} ended after {out.sent}")
        except (StillwebError, ValueError, OSError) as error:
            self._hub.failed(error)
            if out.broke is not None:
                out.broke(error, out.sent)
            self._outgoing.pop(stream, None)
            self._reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
            self._flush()
            return
        out.fetching = None
        if piece is None:
            out.pieces = None
        else:
            out.data = memoryview(piece)
        self.pump()

    def _reset(self, stream: int, code: h2.errors.ErrorCodes) -> None:
        with contextlib.suppress(*_GONE):
            self._h2.reset_stream(stream, code)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._connection.write(data)


def _stream(event: h2.events.Event) -> int:
    stream = getattr(event, "stream_id", None)
    assert isinstance(stream, int)
    return stream


def _spelled(fields: Headers) -> Fields:
    """Return fields as HTTP/2 has them: in lower case, without connection-specific ones."""
    return [(field_bytes(n.lower()), field_bytes(v.strip(" \t"))) for n, v in fields if n.lower() not in _OWN]


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")  # as the recorder decodes fields
