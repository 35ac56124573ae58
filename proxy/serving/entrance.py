"""TLS that a client speaks to the proxy itself, and the tunnels within: wget2 does so to ask for an https address."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.serving import refusing
from proxy.serving.connection import Connection
from proxy.serving.http1 import BadRequest
from proxy.serving.reception import TLS
from proxy.serving.tls import ServerTls, TlsFailed


class Entrance(Connection):
    """A connection from its first byte, which may be one of TLS. One process of several can't be told whose that is."""

    _outer: ServerTls | None = None
    _begun = False
    _inside = False  # what comes has been decrypted already: a tunnel hands on what is its own

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self._begun:
            self._begun = True
            if data[0] == TLS:
                self._begin()
        if self._outer is None or self._inside:
            super().data_received(data)
        else:
            self._through(self._outer, data)

    def _begin(self) -> None:
        assert self._transport is not None
        authority, alpn = self.hub.authority, ("http/1.1",)
        own = authority.context_for(str(self._transport.get_extra_info("sockname")[0]), alpn)
        self._outer = ServerTls(own, lambda name: authority.context_for(name, alpn))
        self._transport = _Within(self._transport, self._outer)  # type: ignore[assignment]

    def _through(self, tls: ServerTls, data: bytes) -> None:
        way = self._transport
        if not isinstance(way, _Within):  # it is closed already
            return
        try:
            data = tls.feed(data)
        except TlsFailed as failure:
            way.tell()
            self.hub.malformed += 1
            bad = BadRequest(f"TLS with the proxy itself failed: {failure}")
            refusing.refuse(self.hub, self.parser.begun(), bad, self.line, self.base)
            self.abort()
            return
        way.tell()
        if data:
            self._inside = True
            super().data_received(data)
            self._inside = False
        if tls.closed and self._busy is None:
            self.close()


class _Within:
    """A transport as asyncio's, whose bytes go through TLS."""

    def __init__(self, inner: asyncio.Transport, tls: ServerTls) -> None:
        self._inner = inner
        self._tls = tls

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self._inner.write(self._tls.encrypt(data))

    def tell(self) -> None:
        """Sends what TLS has to say itself."""
        if out := self._tls.outgoing():
            self._inner.write(out)

    def close(self) -> None:
        """See asyncio.Transport."""
        if last := self._tls.close():
            self._inner.write(last)
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
