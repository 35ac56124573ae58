"""Answers that are held back until they are whole, and let go after a while, while a recorder runs.

mitmproxy holds an answer for as long as it takes: one without an end was never passed on, and filled the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpStream, _events

from stillweb.proxy.record.patching import Wrapped, wrapped

SECONDS = 3.0  # in which a body comes to its end if it has one
MOST = 8 << 20  # bytes of it in memory

_LET_GO = "stillweb-let-go"


def hold(flow: http.HTTPFlow, let_go: Callable[[], None]) -> None:
    """Has the answer of a flow held, until it is whole or `let_go` is called, which has it streamed. To be called at its head."""
    flow.metadata[_LET_GO] = let_go


def _headers(original: Wrapped) -> Wrapped:
    def state_wait_for_response_headers(self: Any, event: events.Event) -> Iterator[Any]:
        yield from original(self, event)
        if _held(self):
            yield commands.RequestWakeup(SECONDS)

    return state_wait_for_response_headers


def _body(original: Wrapped) -> Wrapped:
    def state_consume_response_body(self: Any, event: events.Event) -> Iterator[Any]:
        yield from original(self, event)
        if len(self.response_body_buf) > MOST and _held(self):
            yield from _let_go(self)

    return state_consume_response_body


def _event(original: Wrapped) -> Wrapped:
    def _handle_event(self: Any, event: events.Event) -> Iterator[Any]:
        if not isinstance(event, events.Wakeup):
            yield from original(self, event)
        elif _held(self):
            yield from _let_go(self)

    return _handle_event


def _held(stream: Any) -> bool:
    waits = stream.server_state == stream.state_consume_response_body
    return waits and stream.flow.live and _LET_GO in stream.flow.metadata


def _let_go(stream: Any) -> Iterator[Any]:
    stream.flow.metadata.pop(_LET_GO)()
    data = bytes(stream.response_body_buf)
    stream.response_body_buf.clear()
    yield from stream.start_response_stream()
    if data:
        yield from stream.server_state(_events.ResponseData(stream.stream_id, data))


def held() -> AbstractContextManager[None]:
    """Has it done while it is open."""
    return wrapped(
        [
            (HttpStream, "state_wait_for_response_headers", _headers),
            (HttpStream, "state_consume_response_body", _body),
            (HttpStream, "_handle_event", _event),
        ]
    )
