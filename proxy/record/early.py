"""Answers that are whole before their request is, ended at once while a recorder runs.

mitmproxy keeps the end of one (the last chunk, HTTP/2's END_STREAM) until the request has come to its own. An origin that
has refused an upload then closes its connection, and the client had an answer that breaks off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import _events

from stillweb.proxy.record.patching import Wrapped, altered, wrapped


def _send_response(original: Wrapped) -> Wrapped:
    def send_response(self: Any, *args: Any, **more: Any) -> Iterator[Any]:
        yield from original(self, *args, **more)
        done = self.server_state == self.state_done and self.flow.response.status_code != 101
        if done and self.client_state == self.state_stream_request_body:
            self.stillweb_ended = True
            yield http.SendHttp(_events.ResponseEndOfMessage(self.stream_id), self.context.client)

    return send_response


def _flow_done(original: Wrapped) -> Wrapped:
    def flow_done(self: Any) -> Iterator[Any]:
        def once(command: Any) -> list[Any]:
            ended = isinstance(command, http.SendHttp) and isinstance(
                command.event, _events.ResponseEndOfMessage
            )
            return [] if ended and hasattr(self, "stillweb_ended") else [command]

        yield from altered(original(self), once)

    return flow_done


def _protocol_error(original: Wrapped) -> Wrapped:
    """A client that sends no more of its request, since it has its answer: the origin hears of it."""

    def handle_protocol_error(self: Any, event: Any) -> Iterator[Any]:
        left = isinstance(event, _events.RequestProtocolError) and hasattr(self, "stillweb_ended")
        if left and self.client_state == self.state_stream_request_body:
            self.client_state = self.state_errored
            yield http.SendHttp(event, self.context.server)
        yield from original(self, event)

    return handle_protocol_error


def early_ends() -> AbstractContextManager[None]:
    """Has it done while it is open."""
    return wrapped(
        [
            (http.HttpStream, "send_response", _send_response),
            (http.HttpStream, "flow_done", _flow_done),
            (http.HttpStream, "handle_protocol_error", _protocol_error),
        ]
    )
