"""What mitmproxy's HTTP/2 lacks, put in while a recorder runs: a soft end, and answers as browsers read them.

An origin that ends a connection softly (GOAWAY without an error: nginx does after a thousand requests) goes on with what
it has begun; mitmproxy breaks all of it off. One field that breaks the rules, such as Apache's `upgrade: h2,h2c`, ends
the connection too, with all that is under way on it. Here it is passed over as browsers do, or ends its own exchange.
Of clients it takes heads as long as browsers send them, and tells of a connection that it has to end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import h2.errors
import h2.events
from hyperframe.frame import GoAwayFrame
from mitmproxy.proxy.layer import CommandGenerator as Commands
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import _events, _http2
from mitmproxy.proxy.layers.http._base import ReceiveHttp

from stillweb.proxy.record.heads import Refused
from stillweb.proxy.record.patching import Wrap, Wrapped, wrapped
from stillweb.snapshots.words import counted

MOST_HEAD = 1 << 18  # bytes, as Chromium takes

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_STATUS = re.compile(rb"[1-9][0-9]{2}")
_BREAKS = re.compile(rb"[\0\r\n]")
_OWN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})  # RFC 9113, 8.2.2

_broken = _events.ResponseProtocolError  # its code is a number in mitmproxy 11, else a kind
_REFUSED = h2.errors.ErrorCodes.REFUSED_STREAM

Fields = list[tuple[bytes, bytes]]


class GoingAway(h2.events.Event):
    """The origin takes no more requests, and answers those up to a stream."""

    def __init__(self, last: int) -> None:
        self.last = last


def plain_fields(fields: Sequence[tuple[bytes, bytes]]) -> Fields:
    """The fields of an answer as browsers read them. Raises Refused for one that they refuse."""
    found: Fields = []
    lengths: list[bytes] = []
    for name, value in fields:
        if name[:1] == b":":
            if name == b":status":
                if found or _STATUS.fullmatch(value) is None:
                    raise Refused("its fields do not begin with one status")
                found.append((name, value))
            continue
        _check(name, value)
        if name == b"content-length":
            lengths.append(value.strip(b" \t"))
        elif name not in _OWN:
            found.append((name, value.strip(b" \t")))
    if not found or found[0][0] != b":status":
        raise Refused("its fields do not begin with one status")
    if len(set(lengths)) == 1 and lengths[0].isdigit():  # else its end says where it ends
        found.append((b"content-length", lengths[0]))
    return found


def trailing_fields(fields: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Trailers as browsers read them. Raises Refused."""
    for name, value in fields:
        _check(name, value)
    return [(name, value.strip(b" \t")) for name, value in fields if name not in _OWN]


def _check(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None or name == b"transfer-encoding":
        raise Refused(f"it has a field that HTTP/2 has not: {name[:60].decode('latin-1')!r}")
    if _BREAKS.search(value) is not None:
        raise Refused(f"there is a line break or NUL in its field {name[:60].decode()}")


def _begin(original: Wrapped) -> Wrapped:
    """A connection to an origin: its h2 leaves to us what it would end the connection for."""

    def __init__(self: Any, context: Any) -> None:
        original(self, context)
        connection = self.h2_conn
        connection.config.validate_inbound_headers = False
        _take_long_heads(connection)
        ended, begun = connection._receive_goaway_frame, connection._begin_new_stream

        def goaway(frame: GoAwayFrame) -> Any:
            return ended(frame) if frame.error_code else ([], [GoingAway(frame.last_stream_id)])

        def begin(*args: Any, **more: Any) -> Any:
            stream = begun(*args, **more)
            stream._initialize_content_length = lambda _: None  # an exchange is broken, not its connection
            return stream

        connection._frame_dispatch_table[GoAwayFrame] = goaway
        connection._begin_new_stream = begin
        self.stillweb_left = {}  # bytes to come, by stream
        self.stillweb_going = False

    return __init__


def _begin_with_client(original: Wrapped) -> Wrapped:
    def __init__(self: Any, context: Any) -> None:
        original(self, context)
        connection = self.h2_conn
        _take_long_heads(connection)
        ended = connection._receive_goaway_frame

        def goaway(frame: GoAwayFrame) -> Any:
            if frame.error_code:
                return ended(frame)
            self.stillweb_going = True
            return [], []

        connection._frame_dispatch_table[GoAwayFrame] = goaway
        self.stillweb_going = False

    return __init__


def _client_event(original: Wrapped) -> Wrapped:
    """A client that asks for nothing more is answered what it has asked; mitmproxy breaks all of it off."""

    def _handle_event(self: Any, event: Any) -> Commands[None]:
        yield from original(self, event)
        if self.stillweb_going and not self.h2_conn.open_inbound_streams:
            self.stillweb_going = False
            yield from self.close_connection("the client ended the connection")

    return _handle_event


def _take_long_heads(connection: Any) -> None:
    connection.local_settings.max_header_list_size = MOST_HEAD
    connection.local_settings.acknowledge()
    connection.decoder.max_header_list_size = MOST_HEAD


def _refused(heard: Callable[[str], None]) -> Wrap:
    """A client breaks the rules, and all that it has under way is ended: told, where mitmproxy only logs it."""

    def wrap(original: Wrapped) -> Wrapped:
        def protocol_error(self: Any, message: str, *args: Any) -> Commands[None]:
            heard(f"a connection was ended: {message}")
            yield from original(self, message, *args)

        return protocol_error

    return wrap


def _event(original: Wrapped) -> Wrapped:
    """What an origin says."""

    def handle_h2_event(self: Any, event: Any) -> Commands[bool]:
        try:
            if isinstance(event, GoingAway):
                yield from _going(self, event.last)
                return (yield from _gone(self))
            if isinstance(event, h2.events.ResponseReceived):
                event.headers = plain_fields(event.headers)
                _expect(self, event)
            elif isinstance(event, h2.events.TrailersReceived):
                event.headers = trailing_fields(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                if event.stream_id in self.stillweb_left:
                    self.stillweb_left[event.stream_id] -= len(event.data)
            elif isinstance(event, h2.events.StreamEnded):
                left = self.stillweb_left.pop(event.stream_id, 0)
                if left:
                    raise Refused(
                        f"its body has {counted(abs(left), 'byte')} {'less' if left > 0 else 'more'} than it says"
                    )
            elif isinstance(event, h2.events.StreamReset):
                if event.error_code == _REFUSED:
                    yield from _untaken(self, event.stream_id, "the origin refused the request")
                raise Refused(f"the origin reset its stream ({_named(event.error_code)})")
        except Refused as why:
            yield from _give_up(self, event.stream_id, str(why))
            return (yield from _gone(self))
        done = yield from original(self, event)
        if isinstance(event, h2.events.StreamEnded):
            # what comes now (that no more of the request need be sent, RFC 9113, 8.1) takes nothing of the answer back
            self.streams.pop(event.stream_id, None)
        return done or (yield from _gone(self))

    return handle_h2_event


def _named(code: int) -> str:
    try:
        return str(h2.errors.ErrorCodes(code).name)
    except ValueError:
        return str(code)


def _expect(self: Any, event: h2.events.ResponseReceived) -> None:
    """How long the body says that it is."""
    (_, status), *fields = event.headers
    length = fields[-1][1] if fields and fields[-1][0] == b"content-length" else None
    stream = self.h2_conn.streams.get(event.stream_id)
    if length is None or status in (b"204", b"304") or stream is None or stream.request_method == b"HEAD":
        return
    if event.stream_ended is not None and int(length):
        raise Refused(f"its body has {counted(int(length), 'byte')} less than it says")
    self.stillweb_left[event.stream_id] = int(length)


def _give_up(self: Any, stream: int, why: str) -> Commands[None]:
    """An exchange is broken; the others of its connection go on."""
    if self.streams.pop(stream, None) is None:
        return
    self.stillweb_left.pop(stream, None)
    if not self.is_closed(stream):
        self.h2_conn.reset_stream(stream, h2.errors.ErrorCodes.PROTOCOL_ERROR)
    yield ReceiveHttp(_broken(stream, why, _broken.code))


def _untaken(self: Any, stream: int, why: str) -> Commands[None]:
    """A request that the origin has not looked at may be sent again, whatever it is (RFC 9113, 8.7)."""
    if self.streams.get(stream) is _http2.StreamState.HEADERS_RECEIVED:
        return
    self.streams.pop(stream, None)
    self.our_stream_id.pop(self.their_stream_id[stream], None)  # the next time it is another one
    error = _broken(stream, why, _broken.code)
    error.stillweb_unheard = error.stillweb_untaken = True  # type: ignore[attr-defined]
    yield ReceiveHttp(error)


def _going(self: Any, last: int) -> Commands[None]:
    """The origin goes on with streams up to `last`; the others are sent again on a new connection."""
    self.stillweb_going = self.conn.stillweb_going = True
    why = "the origin ended the connection"
    for stream in [stream for stream in self.streams if stream > last]:
        yield from _untaken(self, stream, why)
    for theirs in list(self.stream_queue):  # not sent yet, and so without a number here
        del self.stream_queue[theirs]
        self.their_stream_id[-theirs] = theirs
        yield from _untaken(self, -theirs, why)


def _gone(self: Any) -> Commands[bool]:
    """Closes a connection that the origin has ended once all on it is done."""
    if not self.stillweb_going or self.streams:
        return False
    yield from self.close_connection("the origin ended the connection")
    return True


def _matches(original: Wrapped) -> Wrapped:
    """A connection that the origin has ended gets no new requests."""

    def connection_spec_matches(self: Any, connection: Any) -> bool:
        return not getattr(connection, "stillweb_going", False) and bool(original(self, connection))

    return connection_spec_matches


def mended_h2(heard: Callable[[str], None]) -> AbstractContextManager[None]:
    """Has it in place while it is open. `heard` is told of clients' connections that were ended."""
    return wrapped(
        [
            (_http2.Http2Client, "__init__", _begin),
            (_http2.Http2Client, "handle_h2_event", _event),
            (_http2.Http2Server, "__init__", _begin_with_client),
            (_http2.Http2Server, "_handle_event", _client_event),
            (_http2.Http2Server, "protocol_error", _refused(heard)),
            (http.GetHttpConnection, "connection_spec_matches", _matches),
        ]
    )
