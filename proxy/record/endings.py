"""How a client's connection ends, put in while a recorder runs: softly behind a whole answer, with a reset within another.

mitmproxy closes both alike, without TLS's goodbye. Where a body lasts until the connection ends, clients took half of one
for all of it; and those that insist on the goodbye (rustls) took all of one for half of it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import commands, tunnel
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers.http import _events, _http1
from mitmproxy.proxy.server import ConnectionHandler
from OpenSSL import SSL

from stillweb.proxy.record.patching import Wrapped, wrapped

_AT_ONCE = struct.pack("ii", 1, 0)  # closing discards what is not sent yet, and resets


def _send(original: Wrapped) -> Wrapped:
    """What goes to a client. `stillweb_broken_off` says of a connection that it ends within a body of unknown length."""

    def send(self: Any, event: Any) -> Iterator[Any]:
        broken = isinstance(event, _events.ResponseProtocolError) and self.response is not None
        if broken and expected_http_body_size(self.request, self.response) == -1:
            self.conn.stillweb_broken_off = True
        yield from original(self, event)

    return send


def _send_close(original: Wrapped) -> Wrapped:
    def send_close(self: Any, command: commands.CloseConnection) -> Iterator[Any]:
        if self.tunnel_state is tunnel.TunnelState.OPEN and not hasattr(self.conn, "stillweb_broken_off"):
            self.stillweb_ended = True
            with contextlib.suppress(SSL.Error):  # the other side broke it already
                self.tls.shutdown()
            yield from self.tls_interact()
        yield from original(self, command)

    return send_close


def _send_data(original: Wrapped) -> Wrapped:
    """Of an answer that outlives its client (`stillweb.proxy.record.outliving`) the rest goes nowhere."""

    def send_data(self: Any, data: bytes) -> Iterator[Any]:
        if not hasattr(self, "stillweb_ended"):
            yield from original(self, data)

    return send_data


def _close_connection(original: Wrapped) -> Wrapped:
    def close_connection(self: Any, connection: Connection, half_close: bool = False) -> None:
        if hasattr(connection, "stillweb_broken_off"):
            sock = self.transports[connection].writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        original(self, connection, half_close)

    return close_connection


def endings() -> AbstractContextManager[None]:
    """Has it done while it is open."""
    return wrapped(
        [
            (_http1.Http1Server, "send", _send),
            (tls.ClientTLSLayer, "send_close", _send_close),
            (tls.ClientTLSLayer, "send_data", _send_data),
            (ConnectionHandler, "close_connection", _close_connection),
        ]
    )
