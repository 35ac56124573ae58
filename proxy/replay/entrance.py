"""New connections: plain HTTP, or TLS with the proxy itself, as wget2 speaks it for https addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from stillweb.proxy.replay import refusing
from stillweb.proxy.replay.arrivals import PATIENCE
from stillweb.proxy.replay.connection import Connection
from stillweb.proxy.replay.hub import Hub
from stillweb.proxy.replay.tls import ServerTls, TlsFailed

TLS = 0x16  # the first byte of a handshake record (RFC 8446, 5.1)


class Entrance(asyncio.Protocol):
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
            heir = Sealed(hub, Connection(hub), data, lambda why: refusing.unread(hub, why))
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


class Sealed(asyncio.Protocol):
    """A TLS connection with the proxy itself that carries the protocol `inner`.

    `read` holds bytes that were already read. `failed(why)` is called if the handshake fails.
    """

    def __init__(self, hub: Hub, inner: asyncio.Protocol, read: bytes, failed: Callable[[str], None]) -> None:
        self._authority = hub.authority
        self._inner = inner
        self._read = read
        self._failed = failed
        self._way: _Within | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        authority, alpn = self._authority, ("http/1.1",)
        own = authority.context_for(str(transport.get_extra_info("sockname")[0]), alpn)
        tls = ServerTls(own, lambda name: authority.context_for(name, alpn))
        self._way = _Within(transport, tls)
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


class _Within:
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
