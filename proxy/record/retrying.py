"""A request sent once more where its origin closed a kept connection just as it was used again, while a recorder runs.

mitmproxy answers with a 502 then. As clients and proxies do (RFC 9110, 9.2.2; RFC 9112, 9.3.1), a request of a safe
method that got no byte of an answer, on a connection that had answered before, is sent again on a new one, once; one that
the origin says it has not looked at (`stillweb.proxy.record.mended_h2`), whatever its method.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import h2.errors
import h2.events
from mitmproxy.proxy import events
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import _events, _http1, _http2
from mitmproxy.proxy.layers.http._base import ReceiveHttp

from stillweb.proxy.record.patching import Wrap, Wrapped, altered, wrapped

# RFC 9110, 9.2.1: PUT and DELETE may be answered otherwise the second time
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def _read_headers(original: Wrapped) -> Wrapped:
    """An HTTP/1 origin speaks or closes. `stillweb_heard` is the last request that it said anything to."""

    def read_headers(self: Any, event: events.Event) -> Iterator[Any]:
        if isinstance(event, events.DataReceived) and self.request is not None:
            self.stillweb_heard = self.request
        heard = getattr(self, "stillweb_heard", None)
        unheard = isinstance(event, events.ConnectionClosed) and heard not in (None, self.request)
        yield from altered(original(self, event), lambda command: [_marked(command) if unheard else command])

    return read_headers


def _h2_event(original: Wrapped) -> Wrapped:
    """An HTTP/2 origin speaks. `stillweb_heard` is whether it answered anything and is content with us."""

    def handle_h2_event(self: Any, event: Any) -> Generator[Any, Any, Any]:
        if isinstance(event, h2.events.ResponseReceived):
            self.stillweb_heard = True
        elif isinstance(event, h2.events.ConnectionTerminated) and event.error_code:
            self.stillweb_heard = False
        return (yield from original(self, event))

    return handle_h2_event


def _h2_error(original: Wrapped) -> Wrapped:
    """It is we who close."""

    def protocol_error(self: Any, *args: Any, **more: Any) -> Iterator[Any]:
        self.stillweb_heard = False
        yield from original(self, *args, **more)

    return protocol_error


def _h2_close(original: Wrapped) -> Wrapped:
    """The end of an HTTP/2 connection is told to each of its streams."""

    def close_connection(self: Any, *args: Any) -> Iterator[Any]:
        waiting = {s for s, state in self.streams.items() if state is _http2.StreamState.EXPECTING_HEADERS}

        def told(command: Any) -> list[Any]:
            again = getattr(self, "stillweb_heard", False) and isinstance(command, ReceiveHttp)
            return [_marked(command) if again and command.event.stream_id in waiting else command]

        yield from altered(original(self, *args), told)

    return close_connection


def _marked(command: Any) -> Any:
    if isinstance(command, ReceiveHttp) and isinstance(command.event, _events.ResponseProtocolError):
        command.event.stillweb_unheard = True  # type: ignore[attr-defined]
    return command


def _protocol_error(original: Wrapped) -> Wrapped:
    """An exchange broke: told to the client, unless it can be tried again."""

    def handle_protocol_error(self: Any, event: Any) -> Iterator[Any]:
        if not (
            getattr(event, "stillweb_unheard", False)
            and not getattr(self, "stillweb_again", False)
            and self.client_state == self.state_done
            and self.server_state == self.state_wait_for_response_headers
            and (self.flow.request.method in SAFE or getattr(event, "stillweb_untaken", False))
            and self.flow.request.raw_content is not None  # it was not passed on as it came
        ):
            yield from original(self, event)
            return
        self.stillweb_again = True
        if not (yield from self.make_server_connection()):
            return
        request, server = self.flow.request, self.context.server
        content, trailers = request.raw_content, request.trailers
        yield http.SendHttp(
            _events.RequestHeaders(self.stream_id, request, not (content or trailers)), server
        )
        if content:
            yield http.SendHttp(_events.RequestData(self.stream_id, content), server)
        if trailers:
            yield http.SendHttp(_events.RequestTrailers(self.stream_id, trailers), server)
        yield http.SendHttp(_events.RequestEndOfMessage(self.stream_id), server)

    return handle_protocol_error


_WRAPPED: list[tuple[Any, str, Wrap]] = [
    (_http1.Http1Client, "read_headers", _read_headers),
    (_http2.Http2Client, "handle_h2_event", _h2_event),
    (_http2.Http2Client, "protocol_error", _h2_error),
    (_http2.Http2Client, "close_connection", _h2_close),
    (http.HttpStream, "handle_protocol_error", _protocol_error),
]


def retrying() -> AbstractContextManager[None]:
    """Has it done while it is open, around what is there."""
    return wrapped(_WRAPPED)
