"""Answers that go on although their client has left, while a recorder runs: what it began to read is kept whole.

A program that reads the first of a file, or a downloader that asks for all of it to see how long it is and then for its
parts, breaks off where it likes, and in replay a little earlier or later. mitmproxy ends such an answer at its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy import http
from mitmproxy.proxy.layers.http import HttpStream, _events

from stillweb.proxy.record.patching import Wrapped, wrapped

SECONDS = 10.0  # in which it comes to its end behind its client
MOST = 16 << 20  # bytes of it

_LEFT = "stillweb-left"


def outlive(flow: http.HTTPFlow, length: int | None, left: Callable[[], None]) -> bool:
    """Has the answer of a flow go on if its client leaves; `left` is called then. To be called where it is streamed.

    Returns whether it will.

    Only that of a GET that says how long it is: of another nobody knows whether it ends, or what it does to its origin.
    """
    if length is None or length > MOST or flow.request.method != "GET":
        return False
    flow.metadata[_LEFT] = left
    return True


def _protocol_error(original: Wrapped) -> Wrapped:
    def handle_protocol_error(self: Any, event: Any) -> Iterator[Any]:
        streamed = self.server_state == self.state_stream_response_body
        if (
            isinstance(event, _events.RequestProtocolError)
            and (self.client_state, streamed) == (self.state_done, True)
            and (left := self.flow.metadata.get(_LEFT)) is not None
        ):
            left()
            return
        yield from original(self, event)

    return handle_protocol_error


def outliving() -> AbstractContextManager[None]:
    """Has it done while it is open."""
    return wrapped([(HttpStream, "handle_protocol_error", _protocol_error)])
