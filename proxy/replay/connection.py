"""Connection of a client: plain or TLS to the proxy, tunnels, then HTTP/1.1, HTTP/2 or a web socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stillweb.proxy.net.addresses import (
    AUTHORITY,
    DEFAULT_SESSION,
    OWN_HOST,
    host_of,
    is_absolute,
    session_name,
    site_named,
)
from stillweb.proxy.net.grease import browsers_suites
from stillweb.proxy.net.turns import TURN
from stillweb.proxy.replay import bad_request
from stillweb.proxy.replay.http1 import (
    CHUNKED,
    PATIENCE,
    BadRequest,
    Message,
    Parser,
    url_inside,
    url_outside,
)
from stillweb.proxy.replay.hub import Hub
from stillweb.proxy.replay.replies import ESTABLISHED, DelayedReply, Memo, Reply, SessionState, Upgraded
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.request import Request
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.proxy.replay.http2 import Http2
    from stillweb.proxy.replay.websocket import SessionSocket
    from stillweb.proxy.replay.websocket_player import Socket
    from stillweb.snapshots.identity.packets import Payload


READ = 1 << 14  # the most that a record holds; a larger buffer costs an allocation each time


class TlsFailed(Exception):
    """A failed handshake or record. The fatal alert came from the client, or is in `outgoing()`."""


class ServerTls:
    """The server side. `certify(name)` returns the context for another name that the client indicates."""

    def __init__(
        self, context: ssl.SSLContext, certify: Callable[[str], ssl.SSLContext] | None = None
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        if certify is not None and context.sni_callback is None:
            context.sni_callback = _choose
        self.ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self.ssl.stillweb_certify = certify  # type: ignore[attr-defined]
        # Used for each request. The methods of `ssl` only pass the call on, in Python, to this object of C.
        inner = getattr(self.ssl, "_sslobj", self.ssl)
        self._arrived, self._read, self._write, self._leaving = (
            self._in.write, inner.read, inner.write, self._out.read,
        )  # fmt: skip
        self.ready = False
        self.closed = False  # the client has announced that it sends nothing more

    @property
    def protocol(self) -> str:
        """The protocol that ALPN chose; http/1.1 if it chose none."""
        return self.ssl.selected_alpn_protocol() or "http/1.1"

    def feed(self, data: bytes) -> bytes:
        """Process bytes off the wire and return the plaintext. Raises TlsFailed."""
        self._arrived(data)
        try:
            if self.ready:
                plain: bytes = self._read(READ)
                if plain and not self._in.pending:  # one record, the usual case: READ has room for all of it
                    return plain
            else:
                self.ssl.do_handshake()
                self.ready = True
                if not self._in.pending:
                    return b""
                plain = self._read(READ)
            if not self._in.pending and not self.ssl.pending():
                if not plain:
                    self.closed = True
                return plain
            parts = [plain]
            while plain:
                plain = self._more()
                parts.append(plain)
            return b"".join(parts)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            self.closed = True
            return b""
        except (ssl.SSLError, OSError) as error:
            raise TlsFailed(_why(error)) from error

    def _more(self) -> bytes:
        try:
            plain: bytes = self._read(READ)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            plain = b""
        if not plain:
            self.closed = True
        return plain

    def encrypt(self, data: bytes) -> bytes:
        self._write(data)
        return self._leaving()

    def outgoing(self) -> bytes:
        """Return the layer's own messages: handshakes, tickets, alerts."""
        return self._out.read() if self._out.pending else b""

    def close(self) -> bytes:
        """Return the closing alert."""
        if self.ready:
            with contextlib.suppress(ssl.SSLError, OSError):  # unwrap awaits the client's alert; ours is out
                self.ssl.unwrap()
        return self.outgoing()


def browser(hello: bytes) -> bytes:
    """Return a browser's cipher suites from its ClientHello (RFC 8446, 4.1.2); b"" for other clients.

    They tell one browser from another.
    """
    at = 44 + (hello[43] if len(hello) > 43 else 0)  # record, handshake, version, random, session's id
    size = int.from_bytes(hello[at : at + 2], "big")
    found = hello[at + 2 : at + 2 + size]
    if not size or size % 2 or len(found) < size:
        return b""
    suites = [int.from_bytes(found[n : n + 2], "big") for n in range(0, size, 2)]
    return b"".join(suite.to_bytes(2, "big") for suite in browsers_suites(suites))


def _choose(sslobject: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
    """Switch to the certificate for the name that the client indicates, if it is not the tunnel's."""
    certify = getattr(sslobject, "stillweb_certify", None)
    if name and certify is not None:
        try:
            sslobject.context = certify(name)
        except Exception:  # noqa: BLE001 -- no exception can leave OpenSSL's callback; this alert reports it
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    return None


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)


class ConnectionWriter(asyncio.Protocol):
    """The writing half of an accepted connection. All methods run on the gateway's event loop."""

    parser: Parser

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.deadline = 0.0  # 0: no deadline
        self._tls: ServerTls | None = None
        self._calm: ServerTls | None = None  # the same while the connection is idle and speaks HTTP/1.1
        self._transport: asyncio.Transport | None = None
        self._busy: asyncio.Task[None] | None = None
        self._paused = False
        self._resumed: asyncio.Event | None = None
        self._left = 0  # unsent bytes at the last check
        self._closing = False
        self._eof = False
        self._holding = False  # the reply is withheld: the client is expected to leave, or polls for news

    def _requests(self, raw: bytes | None = None) -> None:
        """Answer the complete requests. `raw` holds all bytes, if they are expected to be one request."""
        raise NotImplementedError

    # Bytes

    def write(self, data: bytes) -> None:
        """Send bytes, encrypted if the tunnel uses TLS."""
        if self._transport is None:
            return
        if self._tls is not None:
            data = self._tls.encrypt(data)
        self._transport.write(data)

    async def writable(self) -> None:
        """Wait until more may be written."""
        while self._paused and self._resumed is not None:
            await self._resumed.wait()

    @property
    def paused(self) -> bool:
        """Return True if the client reads too slowly."""
        return self._paused

    def _unsent(self) -> int:
        """Return the number of bytes that are written but not sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _gets_on(self) -> bool:
        """Return True if a slow client has read anything since the last call."""
        before, self._left = self._left, self._unsent()
        return self._left != before

    def read_on(self) -> None:
        """Read again, unless the client reads too slowly what it is sent."""
        if not self._paused:
            self._start_reading()

    def close(self) -> None:
        """Close the connection after sending what has been written."""
        self._closing = True
        self._calm = None
        if self._transport is not None:
            if self._tls is not None and (last := self._tls.close()):
                self._transport.write(last)
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once, so that the client sees a truncated answer."""
        self._closing = True
        self._calm = None
        if self._transport is not None:
            self._transport.abort()

    def _stop_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _start_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    # Answers

    def _send(self, reply: Reply, message: Message, *, within: bool = False) -> None:
        """Send a reply. Large and held replies are sent by a task.

        `within` is true if the caller is such a task already. If the client has left, nothing is sent.
        """
        if self._transport is None:
            reply.drop()
            self._closing = self._closing or not message.keep_alive
            return
        if reply.held is not None:
            self._holding = True
            self._work(self._hold(reply.held, message))
            return
        if reply.upgraded is not None and reply.pieces is not None:
            self.write(reply.wire_head + b"\r\n")
            self._work(self._pass_on(reply.upgraded, reply.pieces()))
            return
        keep = message.keep_alive and not (self._eof and self.parser.idle)
        extra = (
            b""
            if keep and not message.http10
            else b"Connection: keep-alive\r\n"
            if keep
            else b"Connection: close\r\n"
        )
        if reply.pieces is None:
            self.write(reply.http1_bytes(extra, http10=message.http10))
            if not keep:
                self.close()
            return
        chunked = (reply.length is None or bool(reply.trailers)) and not message.http10
        if chunked:
            extra += CHUNKED
        elif reply.length is None or reply.trailers:
            keep, extra = False, b"Connection: close\r\n"
        self.write(b"".join((reply.wire_head, extra, b"\r\n")))
        stream = self._stream(reply, reply.pieces(), chunked, keep)
        if within:
            self._busy = None
        self._work(stream)

    async def _pass_on(self, upgraded: Upgraded, pieces: Iterator[bytes]) -> None:
        """Pass the bytes of a live web socket on, both ways, until one side ends it."""
        raise NotImplementedError

    async def _hold(self, held: DelayedReply, message: Message) -> None:
        if held.first_bytes:
            self.write(held.first_bytes)
        try:
            await held.wait()
        except asyncio.CancelledError:
            # bytes after a CONNECT are not a request
            self._closing = self._closing or message.method == "CONNECT"
            raise
        self._holding = False
        late = held.make()
        if late is None:
            if held.reset and self._transport is not None:
                with contextlib.suppress(OSError):  # the client has left
                    raw = self._transport.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.abort()
        else:
            self._send(late, message, within=True)

    def _work(self, coroutine: object) -> None:
        """Run a coroutine as the connection's task. Further requests wait until it is done."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type]
        self._busy = task
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._busy is not task:
            return
        self._busy = None
        if not task.cancelled() and task.exception() is not None:
            self.hub.failed(task.exception())
            self.abort()
        elif self._transport is None:
            # requests read before the client left are answered, for its session and the ledger
            self._requests()
        elif not task.cancelled() and not self._paused and not self._closing:
            self._start_reading()
            self._requests()
            if self._eof and self._busy is None:
                self.close()

    async def _stream(self, reply: Reply, pieces: Iterator[bytes], chunked: bool, keep: bool) -> None:
        sent, length = 0, reply.length
        try:
            while (piece := await self.hub.next_piece(pieces)) is not None:
                await self.writable()
                sent += len(piece)
                self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if reply.pace:
                    await asyncio.sleep(len(piece) / reply.pace)
            if reply.cut:
                self.close()
                return
            if length is not None and sent != length:
                raise ValueError(f"a body of {pluralize(length, 'byte')} ended after {sent}")
        except (StillwebError, ValueError, OSError) as error:
            self.hub.failed(error)
            if reply.broke is not None:
                reply.broke(error, sent)
            self.abort()
            return
        if chunked:
            self.write(reply.last_chunk())
        if not keep:
            self.close()


MAX_WAITING = 1 << 20  # bytes of further requests while one is being answered, and of unread HTTP/2 answers


class _LiveWebSocket:
    """The way from a client to a live web socket: its bytes are written on a thread, and no more is read meanwhile.

    So a server that does not read holds up its client alone, and keeps no more than was read of it at once.
    """

    def __init__(
        self, upgraded: Upgraded, start: Callable[[], None], stop: Callable[[], None], hub: Hub
    ) -> None:
        self._upgraded, self._start, self._stop, self._hub = upgraded, start, stop, hub
        self._unsent: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None

    def feed(self, data: bytes) -> None:
        self._unsent.append(data)
        if self._writing is None:
            self._stop()
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            await self._hub.run(self._upgraded.feed, data)
        self._writing = None
        self._start()

    def resume(self) -> None:
        """Read on, unless bytes are being written."""
        if self._writing is None:
            self._start()

    def lost(self) -> None:
        self._upgraded.lost()


class ConnectionReader(ConnectionWriter):
    """The reading half of an accepted connection. `read` holds bytes that were already read.

    All methods run on the gateway's event loop.
    """

    def __init__(self, hub: Hub, read: bytes = b"") -> None:
        super().__init__(hub)
        self._read = read
        self.parser = Parser()
        self.state: SessionState | None = None  # session of the tunnel
        self._last: SessionState | None = None  # session of the last request outside a tunnel
        self.base = ""  # scheme://authority of the tunnel, "" outside
        self._memos: dict[bytes, Memo] = hub.answerer.kept.memos_of("")  # settled requests of that base
        self._authority = ""
        self._port = 0  # of the gateway
        self._sniffing = False
        self._browser = b""  # fingerprint of the browser's ClientHello
        self._remembered = hub.answerer.replay_memo
        self._h2: Http2 | None = None
        self._socket: Socket | _LiveWebSocket | None = None  # set once the connection has become a web socket

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._port = transport.get_extra_info("sockname")[1]
        self.hub.connections.add(self)
        self.deadline = time.monotonic() + PATIENCE
        data, self._read = self._read, b""
        if data:  # before the bytes that come next
            self.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._calm = None
        self.hub.connections.discard(self)
        for state in (self.state, self._last):
            if state is not None:
                state.clients -= 1
        self._transport, self._paused = None, False
        if self._h2 is not None:
            self._h2.lost()
        if self._socket is not None:
            self._socket.lost()
        if self._busy is None:
            self._requests()
        else:
            self._busy.cancel()

    def pause_writing(self) -> None:
        """Stop reading from a client that reads more slowly than we write."""
        self._paused = True
        self._calm = None
        self._resumed = asyncio.Event()
        self._gets_on()
        self.deadline = time.monotonic() + PATIENCE
        if self._h2 is None:
            self._stop_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.deadline = 0.0
        if self._resumed is not None:
            self._resumed.set()
        if self._h2 is not None:
            self._start_reading()
            self._h2.pump()
        elif self._busy is None:
            self._start_reading()
            self._requests()
        elif isinstance(self._socket, _LiveWebSocket):
            self._socket.resume()

    def eof_received(self) -> bool:
        """Close a half-closed connection once its pending requests are answered.

        A client whose reply is held has left by this, so its connection is aborted.
        """
        self._eof = True
        if self._holding and self._transport is not None:
            self._transport.abort()
            return False
        if self._busy is None and not self._paused and self._h2 is None:
            self.close()
            return False
        return self._tls is None or self._busy is not None

    def data_received(self, data: bytes) -> None:
        tls = self._calm
        if tls is not None:  # fast path: nearly all requests of a long run come this way, so each step counts
            try:
                data = tls.feed(data)
            except TlsFailed as failure:
                self._tls_failed(tls, str(failure))
                return
            memo = self._memos.get(data)
            if memo is not None and (wire := self._remembered(memo, self.state)):  # type: ignore[arg-type]
                self._transport.write(tls.encrypt(wire))  # type: ignore[union-attr]
                if tls.closed:
                    self.close()
            else:
                self._receive(data, tls)
            return
        if self._closing:
            return
        tls = self._tls
        if tls is not None:
            fresh = not tls.ready
            try:
                data = tls.feed(data)
            except TlsFailed as failure:
                self._tls_failed(tls, str(failure))
                return
            if fresh and tls.ready:
                self._established(tls)
            self._receive(data, tls)
        elif self._sniffing:
            self._sniff(data)
        else:
            self._receive(data, None)

    def _receive(self, data: bytes, tls: ServerTls | None) -> None:
        """Pass plaintext on: to HTTP/2, to the web socket or to the HTTP/1.1 parser."""
        if not data:
            if tls is not None:
                self._quiet(tls)
        elif self._h2 is not None:
            self._h2.feed(data)
            # pings and settings are answered whatever the windows say
            if self._h2.is_behind or self._unsent() > MAX_WAITING:
                self._stop_reading()
        elif self._socket is not None:
            self._socket.feed(data)
            if not isinstance(self._socket, _LiveWebSocket) and self._socket.behind:
                self._stop_reading()
        else:
            self._calm = None
            self._parse(data)
            if tls is not None:
                self._quiet(tls)
                if self._waits():
                    self._calm = tls

    def _parse(self, data: bytes) -> None:
        """Parse HTTP/1.1 bytes and answer the requests that are complete."""
        parser = self.parser
        if self._busy is not None or self._paused:
            parser.feed(data)
            if parser.buffered > MAX_WAITING:
                self._stop_reading()
            return
        if parser.idle:
            memo = self._memos.get(data)
            if memo is not None and (wire := self._remembered(memo, self.state or memo.state)):  # type: ignore[arg-type]
                self.write(wire)
            else:
                parser.feed(data)
                self._requests(data)
        else:
            parser.feed(data)
            self._requests()

    def _waits(self) -> bool:
        """Return True if the next bytes begin a request that may be answered at once."""
        busy = self._busy is not None or self._paused or self._closing
        return not busy and self._h2 is None and self._socket is None and self.parser.idle

    def overdue(self, now: float) -> None:
        """End the connection if it makes no progress. Called about once a second."""
        if self._paused and self._gets_on():
            self.deadline = now + PATIENCE
        if self.deadline and now > self.deadline and self._busy is None:
            if self._paused or self.parser.idle:
                self.abort()
            else:
                # a head that never ended may not be a request at all, so it gets no ledger line
                message = None if self.parser.headless else self.parser.unfinished()
                self._refuse(BadRequest("the request did not arrive in time", 408), message)

    # Tunnels

    def _prepare(self) -> None:
        with contextlib.suppress(StillwebError):  # an impossible name: reported if TLS does begin
            if self._sniffing and self._transport is not None:
                self.hub.context(self._tunnel_host())

    def _tunnel_host(self) -> str:
        host = AUTHORITY.fullmatch(self._authority)
        assert host is not None
        return host[1].strip("[]")

    def _sniff(self, data: bytes) -> None:
        """Tell TLS from plain HTTP by the first bytes in a tunnel."""
        data = data.lstrip(b"\r\n")  # extra empty lines after a CONNECT, skipped as in the recorder
        if not data:
            return
        self._sniffing = False
        if data[0] != 0x16:
            self.base = f"http://{self._authority}"
            self._memos = self.hub.answerer.kept.memos_of(self.base)
            self.data_received(data)
            return
        self.base = f"https://{self._authority}"
        self._memos = self.hub.answerer.kept.memos_of(self.base)
        self._browser = browser(data)
        name, hub = self._tunnel_host(), self.hub
        try:
            own = hub.context(name)
        except StillwebError as error:
            self._tls_failed(None, str(error))
            return
        self._tls = ServerTls(own, lambda other: own if other == name else hub.context(other))
        self.deadline = time.monotonic() + PATIENCE
        self.data_received(data)
        asyncio.get_running_loop().call_soon(hub.authority.spare)  # while the client prepares an answer

    def _quiet(self, tls: ServerTls) -> None:
        """Send the TLS layer's own messages, and close the connection after the client's close_notify."""
        if self._transport is None:
            return
        if out := tls.outgoing():
            self._transport.write(out)
        if tls.closed and (self._busy is None or self._holding):
            self.close()

    def _established(self, tls: ServerTls) -> None:
        """Choose the protocol by ALPN after the handshake, and withdraw the misses of broken attempts."""
        self.deadline = 0.0
        assert self.state is not None
        if self._browser:
            self.hub.answerer.misses -= self.state.note_tls_success((self._authority, self._browser))
        if tls.protocol == "h2":
            from stillweb.proxy.replay.http2 import Http2

            self._h2 = Http2(self, self.state, self._authority)

    def _tls_failed(self, tls: ServerTls | None, why: str) -> None:
        assert self.state is not None
        if tls is not None and self._transport is not None and (alert := tls.outgoing()):
            self._transport.write(alert)
        if tls is None or not tls.ready:
            why = f"TLS with the client failed: {why}"
            self.hub.answerer.tunnel_failed(self._authority, self.state, why, self._browser)
        self._closing = True
        self._calm = None
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, bad: BadRequest, message: Message | None) -> None:
        """Answer a malformed request and close the connection."""
        raise NotImplementedError


_PROXY_FIELDS = frozenset({"proxy-authorization", "proxy-connection"})


class Connection(ConnectionReader):
    """An accepted connection. `read` holds bytes that were already read.

    All methods run on the gateway's event loop.
    """

    # Requests

    def _requests(self, raw: bytes | None = None) -> None:
        """Answer the complete requests. `raw` holds all bytes, if they are expected to be one request."""
        message = None
        end = time.monotonic() + TURN
        try:
            while self._busy is None and not self._paused and not self._closing and not self._sniffing:
                message = None
                message = self.parser.pull()
                if message is None:
                    break
                self.deadline = 0.0
                self._answer(message, raw if self.parser.idle else None)
                raw = None
                if self._busy is None and not self.parser.idle and time.monotonic() > end:
                    self._work(asyncio.sleep(0))
            if self._busy is not None or self._closing:
                return
            if self.parser.expects:
                self.parser.expects = False
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not self.parser.idle and not self.deadline:
                self.deadline = time.monotonic() + PATIENCE
        except BadRequest as bad:
            self._refuse(bad, message or self.parser.unfinished())

    def _refuse(self, bad: BadRequest, message: Message | None) -> None:
        self.hub.malformed += 1
        if message is not None:
            bad_request.refuse(self.hub, message, bad, self.state or self._last, self.base)
        self.write(bad_request.answer(bad))
        self.close()

    def _answer(self, message: Message, raw: bytes | None) -> None:
        own = not self.base and message.target.startswith("/")
        if own and (site := site_named(message.fields.get("host"), self._port)):
            message.target = f"http://{site}{message.target}"
        target = message.target
        hub = self.hub
        if self.base:
            if message.method == "CONNECT":
                raise BadRequest("a tunnel within a tunnel")
            state = self.state
            url = url_inside(message, self.base, self._authority)
        elif message.method == "CONNECT":
            self._connect(message)
            return
        elif is_absolute(target):
            name = session_name(message.fields.get("proxy-authorization"))
            url = url_outside(message)
            if host_of(url) != OWN_HOST and name is None and hub.challenge:
                self._send(hub.ask_for_name(), message)
                return
            state = hub.answerer.state(name or DEFAULT_SESSION)
            if state is not self._last and self._transport is not None:
                state.clients += 1
                if self._last is not None:
                    self._last.clients -= 1
                self._last = state
        elif target.startswith("/"):
            state = None
            url = f"http://{OWN_HOST}{target}"
        else:
            raise BadRequest("the target of the request is neither a URL nor a path")
        headers = message.headers
        if not _PROXY_FIELDS.isdisjoint(message.fields):
            headers = tuple((n, v) for n, v in headers if n.lower() not in _PROXY_FIELDS)
        request = Request(message.method, url, headers, message.body)
        host = host_of(url)
        if host == OWN_HOST or state is None:
            # a browser that was led here by the name, not through the proxy, sends the port as well
            asked = (message.fields.get("host") or "").lower()
            through = state is not None or asked == OWN_HOST
            self._send(hub.own_page(request, (OWN_HOST,) if through else ()), message)
            return
        if host in hub.answerer.virtual_hosts:
            self._work(self._virtual(request, state, message, host))
            return
        if hub.answerer.slow(request) or hub.answerer.waits(request, state):
            self._work(self._answer_later(request, state, message))
            return
        if "upgrade" in message.fields and self._converse(request, state, message):
            return
        settled = raw is not None and message.method == "GET" and message.keep_alive and not message.http10
        key = (self.base, raw) if settled and raw is not None and not message.body else None
        self._send(hub.answerer.answer(request, state, key), message)

    def _converse(self, request: Request, state: SessionState, message: Message) -> bool:
        """Turn the connection into a web socket. Return False if none was recorded there."""
        from stillweb.proxy.replay.websocket import SessionSocket
        from stillweb.proxy.replay.websocket_player import STREAM, is_socket_request

        if not is_socket_request(request):
            return False
        url = STREAM.sub("", request.url)
        talk = SessionSocket.begin(self.hub.answerer, Request("GET", url, request.headers), state)
        if talk is None:
            return False
        fault = talk.met
        if fault is not None and (reply := self.hub.answerer.fault_reply(request, state, fault)) is not None:
            self._send(reply, message, within=self._busy is not None)
        elif fault is not None and fault.delay:
            self._work(self._call_later(fault.delay, lambda: self._open_socket(request, state, talk)))
        else:
            self._open_socket(request, state, talk)
        return True

    def _open_socket(self, request: Request, state: SessionState, talk: SessionSocket) -> None:
        """Answer the handshake and start the conversation. A fault may cut the server's first message."""
        from stillweb.proxy.replay.websocket_player import STREAM, Socket, handshake

        url = STREAM.sub("", request.url)
        write, fault = self.write, talk.met
        if fault is not None and fault.fault.kind == "cut":

            def write(data: bytes) -> None:
                if not self._closing:
                    self.write(data[: fault.bytes_left(len(data))])
                    self.close()

        async def aside(judge: Callable[[], None], message: Payload) -> None:
            self._stop_reading()
            try:
                await talk.judge_in_thread(judge, message)
            finally:
                self.read_on()

        self.write(handshake(request, talk.player.protocol))
        self._socket = talk.socket = Socket(
            talk.player, write, self.close, talk.note_stray, talk.note_doubt, talk.note_message,
            in_thread=aside, read_on=self.read_on, secrets=talk.secrets, marked=url != request.url,
        )  # fmt: skip
        state.note_socket(self._socket)
        self._socket.start()
        if rest := self.parser.take():
            self._socket.feed(rest)
        if self._transport is None:
            self._socket.lost()

    async def _pass_on(self, upgraded: Upgraded, pieces: Iterator[bytes]) -> None:
        passing = self._socket = _LiveWebSocket(upgraded, self._start_reading, self._stop_reading, self.hub)
        self._holding = True  # a client that ends its side has left
        try:
            passing.feed(self.parser.take())
            while (piece := await self.hub.next_piece(pieces)) is not None:
                await self.writable()
                self.write(piece)
        finally:
            upgraded.lost()
        self.close()

    def _connect(self, message: Message) -> None:
        target = message.target
        # some clients write IPv6 addresses without brackets
        if target.count(":") > 1 and not target.startswith("["):
            host, _, port = target.rpartition(":")
            target = f"[{host}]:{port}"
        match = AUTHORITY.fullmatch(target)
        if match is None or (match[2] and not 0 < int(match[2]) < 65536):
            raise BadRequest("CONNECT needs host:port")
        name = session_name(message.fields.get("proxy-authorization"))
        if name is None and self.hub.challenge and match[1].lower() != OWN_HOST:
            self._send(self.hub.ask_for_name(), message)
            return
        self._authority = match[1] if match[2] in (None, "443") else target
        state = self.hub.answerer.state(name or DEFAULT_SESSION)
        ours = match[1].lower() == OWN_HOST
        refusal, delay = (None, 0.0) if ours else self.hub.answerer.tunnel(self._authority, state)
        if refusal is not None:
            self._send(refusal, message)
        elif delay:
            self._work(self._call_later(delay, lambda: self._tunnel(state)))
        else:
            self._tunnel(state)

    def _tunnel(self, state: SessionState) -> None:
        if self._transport is None:  # the client has left: it said no more
            self._closing = True
            return
        self.state = state
        state.clients += 1
        self.base = f"?://{self._authority}"
        self._sniffing = True
        self.write(ESTABLISHED)
        if rest := self.parser.take():
            self._sniff(rest)
        else:  # mint the certificate while the client, most likely, prepares its ClientHello
            asyncio.get_running_loop().call_soon(self._prepare)

    async def _call_later(self, delay: float, act: Callable[[], None]) -> None:
        """Act after a fault's delay in seconds."""
        self._holding = True
        await asyncio.sleep(delay)
        self._holding = False
        act()

    async def _answer_later(self, request: Request, state: SessionState, message: Message) -> None:
        if self.hub.answerer.slow(request):
            await self.hub.answerer.prepare(request, state)
        if self.hub.answerer.waits(request, state):
            self._holding = True
            await self.hub.answerer.due(request, state, left=self._transport is None)
            self._holding = False
        if "upgrade" in message.fields and self._converse(request, state, message):
            return
        self._send(self.hub.answerer.answer(request, state), message, within=True)

    async def _virtual(self, request: Request, state: SessionState, message: Message, host: str) -> None:
        reply = await self.hub.virtual(request, state, host)
        self._send(reply, message, within=True)


TLS = 0x16  # the first byte of a handshake record (RFC 8446, 5.1)


class NewConnection(asyncio.Protocol):
    """A new connection whose first bytes decide which protocol handles it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._transport: asyncio.Transport | None = None
        self._end = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._hub.connections.add(self)
        self._end = time.monotonic() + PATIENCE

    def connection_lost(self, error: Exception | None) -> None:
        self._hub.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        hub, transport = self._hub, self._transport
        if transport is None:
            return
        hub.connections.discard(self)
        heir: asyncio.Protocol
        if data[0] == TLS:
            heir = ProxyTls(
                hub, Connection(hub), data, lambda why: bad_request.note_unread_connection(hub, why)
            )
        else:
            heir = Connection(hub, data)
        transport.set_protocol(heir)
        heir.connection_made(transport)

    def overdue(self, now: float) -> None:
        """End the connection if it makes no progress. Called about once a second."""
        if now > self._end:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()


class ProxyTls(asyncio.Protocol):
    """A TLS connection with the proxy itself that carries the protocol `inner`.

    `read` holds bytes that were already read. `failed(why)` is called if the handshake fails.
    """

    def __init__(self, hub: Hub, inner: asyncio.Protocol, read: bytes, failed: Callable[[str], None]) -> None:
        self._authority = hub.authority
        self._inner = inner
        self._read = read
        self._failed = failed
        self._way: _TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        authority, alpn = self._authority, ("http/1.1",)
        own = authority.context_for(str(transport.get_extra_info("sockname")[0]), alpn)
        tls = ServerTls(own, lambda name: authority.context_for(name, alpn))
        self._way = _TlsTransport(transport, tls)
        self._inner.connection_made(self._way)  # type: ignore[arg-type]
        data, self._read = self._read, b""
        self.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._way = None
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        way = self._way
        if way is None or way.is_closing():
            return
        try:
            plain = way.tls.feed(data)
        except TlsFailed as failure:
            way.tell()
            if not way.tls.ready:
                self._failed(f"TLS with the proxy itself failed: {failure}")
            way.close()
            return
        way.tell()
        if plain:
            self._inner.data_received(plain)
        if way.tls.closed and not self._inner.eof_received():
            way.close()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _TlsTransport:
    """An asyncio transport whose bytes go through TLS."""

    def __init__(self, inner: Any, tls: ServerTls) -> None:
        self._inner = inner
        self.tls = tls

    def write(self, data: bytes) -> None:
        self._inner.write(self.tls.encrypt(data))

    def tell(self) -> None:
        """Send the TLS layer's own messages: handshake, tickets, alerts."""
        if out := self.tls.outgoing():
            self._inner.write(out)

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if last := self.tls.close():
            self._inner.write(last)
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
