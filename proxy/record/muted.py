"""Origins that are asked for TLS and say nothing, while a recorder runs: their connections end with their clients'.

mitmproxy has a client wait until its origin has spoken, and hears of nothing else meanwhile: one that has left would be known
to have left only when the recorder stops.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.proxy import events
from mitmproxy.proxy.server import ConnectionHandler

from stillweb.proxy.record.flows import gone
from stillweb.proxy.record.patching import Wrapped, wrapped


def _mute(origin: Connection) -> bool:
    asked = origin.tls and origin.timestamp_start is not None
    return asked and origin.timestamp_tls_setup is None


def _server_event(original: Wrapped) -> Wrapped:
    async def server_event(self: Any, event: events.Event) -> None:
        await original(self, event)
        if (
            isinstance(event, events.ConnectionClosed)
            and event.connection is self.client
            and gone(self.client)
        ):
            for connection, opened in list(self.transports.items()):
                if connection is not self.client and _mute(connection) and opened.handler is not None:
                    opened.handler.cancel("its client has left")

    return server_event


def muted() -> AbstractContextManager[None]:
    """Has it done while it is open."""
    return wrapped([(ConnectionHandler, "server_event", _server_event)])
