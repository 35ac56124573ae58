"""Changes to scheduling: a connection gives way to others after some milliseconds of work.

mitmproxy handles all that it has read from a connection first. 3,000 HTTP/2 requests that a client takes back at once
are 78 kB, and one read of 64 kB may hold chunks or web socket messages of one byte: seconds for all others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.layers.http._base import HttpConnection
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from stillweb.proxy.net.turns import PREFACE, TURN, Frames, http2_size, websocket_size
from stillweb.proxy.record.mitmproxy_compat.dispatch import Commands, nothing, proxy_of

COMMANDS = 32  # at most in a turn: hooks that come of them, such as those of messages, are answered behind it


class Turns(HttpConnection):
    """Handle the events of a connection for TURN seconds, and the rest in later turns."""

    in_order = True  # False where messages of several exchanges are apart, as in HTTP/2

    def __init__(self, context: Context) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        self._arrived: deque[events.Event] = deque()  # that no turn has come to yet
        self._under_way: Commands | None = None  # of an event whose commands are not all given yet
        self._next_turn: commands.RequestWakeup | None = None

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, events.DataReceived):
            self._arrived.extend(
                events.DataReceived(event.connection, piece) for piece in self._pieces(event.data)
            )
        elif isinstance(event, events.ConnectionClosed):
            self._arrived.append(event)
        elif isinstance(event, events.Wakeup) and event.command is self._next_turn:
            self._next_turn = None
        elif self._next_turn and self.in_order:
            # else the end of an answer, which waits for its turn, would be taken for that of the next request
            self._arrived.append(event)
        else:
            inner: Commands = super()._handle_event(event)
            return inner
        return nothing() if self._next_turn else self._take_turn()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes in parts each of which takes little time until it gives a command."""
        yield data

    def _take_turn(self) -> Commands:
        end, given = time.monotonic() + TURN, 0
        while self._under_way or self._arrived:
            if self._under_way is None:
                self._under_way = super()._handle_event(self._arrived.popleft())
            for command in self._under_way:
                yield command
                given += 1
                if given >= COMMANDS or time.monotonic() > end:
                    break
            else:
                self._under_way = None
            if (self._under_way or self._arrived) and (given >= COMMANDS or time.monotonic() > end):
                self._next_turn = commands.RequestWakeup(0)
                proxy_of(self.context).behind.add(self.conn)
                yield self._next_turn
                return
        proxy_of(self.context).behind.discard(self.conn)


class FramesInTurns(_http2.Http2Connection):
    """Cut HTTP/2 at the ends of frames: h2 reads all that it is given before mitmproxy gives a command."""

    _arrived: deque[events.Event]
    in_order = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        self._frames = Frames(http2_size, PREFACE if self.conn is context.client else 0)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        return self._frames.cut(data)

    def close_connection(self, msg: str) -> Commands:
        """See Http2Connection. Leave out what no turn has come to: mitmproxy hands the layer nothing more."""
        self._arrived.clear()
        proxy_of(self.context).behind.discard(self.conn)
        return super().close_connection(msg)


class MessagesInTurns(_http1.Http1Connection):
    """Cut web sockets at the ends of frames: wsproto reads all that it is given before mitmproxy gives a command."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._frames = Frames(websocket_size)

    def passthrough(self, event: events.Event) -> Commands:
        assert self.response is not None
        socket = self.response.headers.get("upgrade", "").lower() == "websocket"
        if not isinstance(event, events.DataReceived) or not socket:
            yield from super().passthrough(event)
            return
        for piece in self._frames.cut(event.data):
            yield from super().passthrough(events.DataReceived(event.connection, piece))


class ReadsInTurns(ProxyConnectionHandler):
    """Read no more from a client while earlier data waits for its turn."""

    async def drain_writers(self) -> None:
        await super().drain_writers()  # type: ignore[no-untyped-call]
        while proxy_of(self.layer.context).behind:
            await asyncio.sleep(TURN)
