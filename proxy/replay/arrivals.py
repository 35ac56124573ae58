"""The reading half of a client connection: tunnels, TLS, then HTTP/1.1, HTTP/2 or a web socket.

Requests are handled in `stillweb.proxy.replay.connection`, output in `stillweb.proxy.replay.channel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from stillweb.proxy.net.addresses import AUTHORITY
from stillweb.proxy.replay.channel import Channel
from stillweb.proxy.replay.http1 import BadRequest, Message, Parser
from stillweb.proxy.replay.replies import Line, Memo
from stillweb.proxy.replay.tls import ServerTls, TlsFailed, browser
from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from stillweb.proxy.replay.http2 import Http2
    from stillweb.proxy.replay.hub import Hub
    from stillweb.proxy.replay.sockets import Socket

PATIENCE = 30.0  # seconds for a request to arrive once begun, and for a slow reader to make progress
MAX_WAITING = 1 << 20  # bytes of further requests buffered while one is being answered


class Arrivals(Channel):
    """The reading half of an accepted connection. `read` holds bytes that were already read.

    All methods run on the gateway's event loop.
    """

    def __init__(self, hub: Hub, read: bytes = b"") -> None:
        super().__init__(hub)
        self._read = read
        self.parser = Parser()
        self.line: Line | None = None  # session of the tunnel
        self._last: Line | None = None  # session of the last request outside a tunnel
        self.base = ""  # scheme://authority of the tunnel, "" outside
        self._memos: dict[bytes, Memo] = hub.answerer.kept.memos_of("")  # settled requests of that base
        self._authority = ""
        self._sniffing = False
        self._browser = b""  # fingerprint of the browser's ClientHello
        self._remembered = hub.answerer.remembered
        self._h2: Http2 | None = None
        self._socket: Socket | None = None  # set once the connection has become a web socket

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.hub.connections.add(self)
        self.deadline = time.monotonic() + PATIENCE
        data, self._read = self._read, b""
        if data:  # before the bytes that come next
            self.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._calm = None
        self.hub.connections.discard(self)
        for line in (self.line, self._last):
            if line is not None:
                line.clients -= 1
        if self._busy is not None:
            self._busy.cancel()
        if self._h2 is not None:
            self._h2.lost()
        if self._socket is not None:
            self._socket.closed = True
        self._transport = None

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
            self._h2.pump()
        elif self._busy is None:
            self._start_reading()
            self._requests()

    def eof_received(self) -> bool:
        """Close a half-closed connection once its pending requests are answered.

        A client whose reply is held has left by this, so its connection is aborted.
        """
        self._eof = True
        if self._holding:
            self.abort()
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
            if memo is not None and (wire := self._remembered(memo, self.line)):  # type: ignore[arg-type]
                self._transport.write(tls.encrypt(wire))  # type: ignore[union-attr]
                if tls.closed:
                    self.close()
            else:
                self._heard(data, tls)
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
            self._heard(data, tls)
        elif self._sniffing:
            self._sniff(data)
        else:
            self._heard(data, None)

    def _heard(self, data: bytes, tls: ServerTls | None) -> None:
        """Pass plaintext on: to HTTP/2, to the web socket or to the HTTP/1.1 parser."""
        if not data:
            if tls is not None:
                self._quiet(tls)
        elif self._h2 is not None:
            self._h2.feed(data)
        elif self._socket is not None:
            self._socket.feed(data)
        else:
            self._calm = None
            self._asked(data)
            if tls is not None:
                self._quiet(tls)
                if self._waits():
                    self._calm = tls

    def _asked(self, data: bytes) -> None:
        """Parse HTTP/1.1 bytes and answer the requests that are complete."""
        parser = self.parser
        if self._busy is not None or self._paused:
            parser.feed(data)
            if parser.buffered > MAX_WAITING:
                self._stop_reading()
            return
        if parser.idle:
            memo = self._memos.get(data)
            if memo is not None and (wire := self._remembered(memo, self.line or memo.line)):  # type: ignore[arg-type]
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
                message = None if self.parser.headless else self.parser.begun()
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
        assert self.line is not None
        if self._browser:
            self.hub.answerer.misses -= self.line.tried_again((self._authority, self._browser))
        if tls.protocol == "h2":
            from stillweb.proxy.replay.http2 import Http2

            self._h2 = Http2(self, self.line, self._authority)

    def _tls_failed(self, tls: ServerTls | None, why: str) -> None:
        assert self.line is not None
        if tls is not None and self._transport is not None and (alert := tls.outgoing()):
            self._transport.write(alert)
        if tls is None or not tls.ready:
            why = f"TLS with the client failed: {why}"
            self.hub.answerer.tunnel_failed(self._authority, self.line, why, self._browser)
        self._closing = True
        self._calm = None
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, bad: BadRequest, message: Message | None) -> None:
        """Answer a malformed request and close the connection."""
        raise NotImplementedError
