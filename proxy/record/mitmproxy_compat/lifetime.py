"""Changes to how long exchanges and connections last, and to how they end."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import h2.events
from mitmproxy import http as mitmproxy_http
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import commands, events, tunnel
from mitmproxy.proxy.layers import http, tls
from mitmproxy.proxy.layers.http import HttpStream, _events, _http1, _http2
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from OpenSSL import SSL

from stillweb.proxy.record.mitmproxy_compat.dispatch import Commands, nothing, proxy_of, replace_commands

# Durations


class SteadyClock:
    """The module `time` for mitmproxy: its `time()` is the machine's when a recorder was first imported, and steady since.

    Timeouts, and the times between request and answer, must not change with a clock that is set.
    """

    _ahead = time.time() - time.monotonic()

    @classmethod
    def time(cls) -> float:
        return cls._ahead + time.monotonic()


# Requests sent again

# RFC 9110, 9.2.1: PUT and DELETE may be answered otherwise the second time
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Unanswered(_events.ResponseProtocolError):
    """The failure of a request that got no byte of an answer, on a connection that had answered before.

    `unprocessed`: the origin says that it has not looked at the request.
    """

    def __init__(self, error: _events.ResponseProtocolError, *, unprocessed: bool = False) -> None:
        super().__init__(error.stream_id, error.message, error.code)
        self.unprocessed = unprocessed


def _as_unanswered(command: Any) -> list[Any]:
    error = command.event if isinstance(command, ReceiveHttp) else None
    if isinstance(error, _events.ResponseProtocolError) and not isinstance(error, Unanswered):
        return [ReceiveHttp(Unanswered(error))]
    return [command]


class ClosedUnanswered(_http1.Http1Client):
    """Tell the end of a connection that answered nothing of this request, but one before, from other failures."""

    _last_answered: object = None  # the last request that any byte came for

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived) and self.request is not None:
            self._last_answered = self.request
        inner: Commands = super().read_headers(event)
        kept = self._last_answered is not None and self._last_answered is not self.request
        if kept and isinstance(event, events.ConnectionClosed):
            return replace_commands(inner, _as_unanswered)
        return inner


class ClosedUnansweredH2(_http2.Http2Client):
    """The same for an HTTP/2 connection, unless one of both sides ends it for an error."""

    _has_answered = False

    def handle_h2_event(self, event: Any) -> Commands:
        if isinstance(event, h2.events.ResponseReceived):
            self._has_answered = True
        elif isinstance(event, h2.events.ConnectionTerminated) and event.error_code:
            self._has_answered = False
        return super().handle_h2_event(event)

    def protocol_error(self, message: str, *code: Any) -> Commands:
        self._has_answered = False
        return super().protocol_error(message, *code)

    def close_connection(self, msg: str) -> Commands:
        waiting = {s for s, state in self.streams.items() if state is _http2.StreamState.EXPECTING_HEADERS}

        def mark(command: Any) -> list[Any]:
            unanswered = isinstance(command, ReceiveHttp) and command.event.stream_id in waiting
            return _as_unanswered(command) if unanswered and self._has_answered else [command]

        return replace_commands(super().close_connection(msg), mark)


class Retries(HttpStream):
    """Send a request once more, on a new connection, where its origin closed a kept one just as it was used again.

    Clients and proxies do so (RFC 9110, 9.2.2; RFC 9112, 9.3.1) with a safe method, and with any that the origin has
    not looked at.
    """

    _is_retry = False

    def handle_protocol_error(self, event: Any) -> Commands:
        if not (
            isinstance(event, Unanswered)
            and not self._is_retry
            and self.client_state == self.state_done
            and self.server_state == self.state_wait_for_response_headers
            and (self.flow.request.method in SAFE or event.unprocessed)
            and self.flow.request.raw_content is not None  # its body was not passed on as it came
        ):
            yield from super().handle_protocol_error(event)
            return
        self._is_retry = True
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


# Answers that last longer than their request or their client

OUTLIVE_SECONDS = 10.0  # in which an answer may end behind its client
OUTLIVE_BYTES = 16 << 20
HOLD_SECONDS = 3.0  # in which a body ends, if it has an end
HOLD_BYTES = 8 << 20

_ON_LEAVE = "stillweb-on-leave"
_ON_RELEASE = "stillweb-on-release"


def outlive_client(flow: mitmproxy_http.HTTPFlow, length: int | None, on_leave: Callable[[], None]) -> bool:
    """Let a streamed answer go on if its client leaves, and return True; `on_leave` is called then.

    Only the answer to a GET that says how long it is: nobody knows of another whether it ends, or what it does to its
    origin.
    """
    if length is None or length > OUTLIVE_BYTES or flow.request.method != "GET":
        return False
    flow.metadata[_ON_LEAVE] = on_leave
    return True


class OutlivingResponses(HttpStream):
    """Read an answer to its end although its client has left, so that it is recorded whole.

    A program that reads the first of a file, or a downloader that goes on with parts of it, breaks off where it likes,
    and in replay a little earlier or later.
    """

    def handle_protocol_error(self, event: Any) -> Commands:
        if (
            isinstance(event, _events.RequestProtocolError)
            and self.client_state == self.state_done
            and self.server_state == self.state_stream_response_body
            and (on_leave := self.flow.metadata.get(_ON_LEAVE)) is not None
        ):
            on_leave()
            return
        yield from super().handle_protocol_error(event)


def hold(flow: mitmproxy_http.HTTPFlow, on_release: Callable[[], None]) -> None:
    """Hold an answer, at its head, until it is whole or too long; `on_release` must have it streamed then."""
    flow.metadata[_ON_RELEASE] = on_release


class HeldResponses(HttpStream):
    """Pass a held answer on after a while, as it may have no end."""

    def state_wait_for_response_headers(self, event: Any) -> Commands:
        yield from super().state_wait_for_response_headers(event)
        if self._is_held():
            yield commands.RequestWakeup(HOLD_SECONDS)

    def state_consume_response_body(self, event: Any) -> Commands:
        inner: Commands = super().state_consume_response_body(event)
        return self._release_long(inner) if _ON_RELEASE in self.flow.metadata else inner

    def _release_long(self, inner: Commands) -> Commands:
        yield from inner
        if len(self.response_body_buf) > HOLD_BYTES and self._is_held():
            yield from self._release()

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, events.Wakeup):
            return self._release() if self._is_held() else nothing()
        inner: Commands = super()._handle_event(event)
        return inner

    def _is_held(self) -> bool:
        waits = self.server_state == self.state_consume_response_body
        return waits and self.flow.live and _ON_RELEASE in self.flow.metadata

    def _release(self) -> Commands:
        self.flow.metadata.pop(_ON_RELEASE)()
        data = bytes(self.response_body_buf)
        self.response_body_buf.clear()  # type: ignore[no-untyped-call]
        yield from self.start_response_stream()
        if data:
            yield from self.server_state(_events.ResponseData(self.stream_id, data))


class EarlyResponses(HttpStream):
    """End an answer at once that is whole before its request is.

    mitmproxy keeps the end (the last chunk, HTTP/2's END_STREAM) until the request has come to its own. An origin that
    has refused an upload then closes its connection, and the client had an answer that breaks off.
    """

    _has_ended = False

    def send_response(self, already_streamed: bool = False) -> Commands:
        inner: Commands = super().send_response(already_streamed)
        return inner if self.client_state == self.state_done else self._end_early(inner)

    def _end_early(self, inner: Commands) -> Commands:
        yield from inner
        assert self.flow.response is not None
        done = self.server_state == self.state_done and self.flow.response.status_code != 101
        if done and self.client_state == self.state_stream_request_body:
            self._has_ended = True
            yield http.SendHttp(_events.ResponseEndOfMessage(self.stream_id), self.context.client)

    def flow_done(self) -> Commands:
        def without_end(command: Any) -> list[Any]:
            end = isinstance(command, http.SendHttp) and isinstance(
                command.event, _events.ResponseEndOfMessage
            )
            return [] if end else [command]

        inner: Commands = super().flow_done()
        return replace_commands(inner, without_end) if self._has_ended else inner

    def handle_protocol_error(self, event: Any) -> Commands:
        """See HttpStream. Tell the origin of a client that sends no more of its request, since it has its answer."""
        left = isinstance(event, _events.RequestProtocolError) and self._has_ended
        if left and self.client_state == self.state_stream_request_body:
            self.client_state = self.state_errored
            yield http.SendHttp(event, self.context.server)
        yield from super().handle_protocol_error(event)


# Clients that send nothing more

LOOK_SECONDS = 0.5  # between looks at whether a client is still there

_TABLES = Path("/proc/self/net")


def is_connected(client: Connection) -> bool:
    """Return True if a process of this machine has the other end of a connection open (Linux; else False)."""
    peer, own = client.peername, client.sockname
    if not sys.platform.startswith("linux") or not peer or not own:
        return False
    ends = [_table_entry(*peer[:2]), _table_entry(*own[:2])]
    try:
        table = (_TABLES / ("tcp6" if ":" in peer[0] else "tcp")).read_text()
    except OSError:
        return False
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == ends:
            return columns[9] != "0"  # its inode, which a socket has for as long as someone has it open
    return False


def _table_entry(address: str, port: int) -> str:
    """Return an address and port as those tables have them: each four bytes as a number of this machine."""
    packed = ipaddress.ip_address(address.partition("%")[0]).packed
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def is_half_closed(client: Connection) -> bool:
    """Return True if a client has said that it sends nothing more, and waits for an answer."""
    return client.state is ConnectionState.CAN_WRITE and is_connected(client)


def has_left(client: Connection) -> bool:
    """Return True if a client has closed its connection, or shut its side and waits for nothing."""
    return not client.state & ConnectionState.CAN_READ and not is_half_closed(client)


class HalfClosedClients(_http1.Http1Server):
    """Answer a client that sends nothing more, where mitmproxy takes that for its leaving.

    Which of both it is shows on the wire only when something is written; but most clients are of this machine, whose
    system knows whether anyone still has the other end.
    """

    def wait(self, event: events.Event) -> Commands:
        if isinstance(event, events.ConnectionClosed) and is_half_closed(self.conn):
            yield commands.RequestWakeup(LOOK_SECONDS)
            return
        yield from super().wait(event)

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, events.Wakeup):  # nobody else asks for one here
            return self.wait(events.ConnectionClosed(self.conn)) if self.state == self.wait else nothing()
        return super()._handle_event(event)

    def mark_done(self, *, request: bool = False, response: bool = False) -> Commands:
        inner: Commands = super().mark_done(request=request, response=response)
        return self._close_behind(inner) if self.conn.state is ConnectionState.CAN_WRITE else inner

    def _close_behind(self, inner: Commands) -> Commands:
        """Close the connection of a client that sends nothing more behind its last answer."""
        yield from inner
        if self.state == self.read_headers and self.conn.state is ConnectionState.CAN_WRITE:
            yield commands.CloseConnection(self.conn)
            self.state = self.done


# Ends of connections

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing discards what is not sent yet, and resets


class CutResponses(_http1.Http1Server):
    """Note a connection that ends within a body of unknown length, which its end would make look whole."""

    def send(self, event: Any) -> Commands:
        broken = isinstance(event, _events.ResponseProtocolError) and self.response is not None
        if broken and self.request and expected_http_body_size(self.request, self.response) == -1:
            proxy_of(self.context).cut.add(self.conn)
        return super().send(event)


class ResetConnections(ProxyConnectionHandler):
    """Reset such a connection, so that its client sees that the body is cut."""

    def close_connection(self, connection: Connection, half_close: bool = False) -> None:
        if connection in proxy_of(self.layer.context).cut:
            writer: Any = self.transports[connection].writer
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        super().close_connection(connection, half_close)


_receive_data = tls.TLSLayer.receive_data


def receive_tls_data(self: tls.ServerTLSLayer, data: bytes) -> Commands:
    """Take an origin's fatal alert for the end of the connection.

    OpenSSL notes it like a close_notify, so that mitmproxy takes the end that follows for passed on already.
    """
    yield from _receive_data(self, data)
    if self.tls.get_shutdown() & SSL.RECEIVED_SHUTDOWN and self.conn.state & ConnectionState.CAN_READ:
        self.conn.state &= ~ConnectionState.CAN_READ
        yield from self.event_to_child(events.ConnectionClosed(self.conn))


class TlsGoodbyes(tls.ClientTLSLayer):
    """Say TLS's goodbye behind a whole answer; clients that insist on it (rustls) took all of one for half of it."""

    _has_said_goodbye = False

    def send_close(self, command: commands.CloseConnection) -> Commands:
        if self.tunnel_state is tunnel.TunnelState.OPEN and self.conn not in proxy_of(self.context).cut:
            self._has_said_goodbye = True
            with contextlib.suppress(SSL.Error):  # the other side broke it already
                self.tls.shutdown()
            yield from self.tls_interact()
        yield from super().send_close(command)

    def send_data(self, data: bytes) -> Commands:
        return nothing() if self._has_said_goodbye else super().send_data(data)


class SilentOrigins(ProxyConnectionHandler):
    """Close connections to origins that are asked for TLS and say nothing, when their client leaves.

    mitmproxy has a client wait until its origin has spoken, and hears of nothing else meanwhile: that one has left
    would be known only when the recorder stops.
    """

    def server_event(self, event: events.Event) -> Coroutine[Any, Any, None]:
        handled = super().server_event(event)
        closed = isinstance(event, events.ConnectionClosed) and event.connection is self.client
        return self._leave_silent(handled) if closed else handled

    async def _leave_silent(self, handled: Coroutine[Any, Any, None]) -> None:
        await handled
        if has_left(self.client):
            for connection, opened in list(self.transports.items()):
                silent = connection.timestamp_start is not None and connection.timestamp_tls_setup is None
                if connection is not self.client and connection.tls and silent and opened.handler is not None:
                    opened.handler.cancel("its client has left")
