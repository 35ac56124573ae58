"""Changes to HTTP/2: connections end softly, answers are read as browsers read them, and unread bodies go to disk.

One field that breaks the rules, such as Apache's `upgrade: h2,h2c`, makes mitmproxy end the connection, with all that
is under way on it. Here it is passed over, as browsers do, or fails its own exchange.
"""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import h2.errors
import h2.events
from hyperframe.frame import GoAwayFrame
from mitmproxy.connection import Connection
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import GetHttpConnection, HttpStream, _http2
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestProtocolError
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection, SendH2Data

from stillweb.proxy.net.huffman import LinearHuffman
from stillweb.proxy.record.mitmproxy_compat.dispatch import Commands, nothing, proxy_of, replace_commands
from stillweb.proxy.record.mitmproxy_compat.http1 import Unreadable, failure
from stillweb.proxy.record.mitmproxy_compat.lifetime import Unanswered
from stillweb.snapshots.words import pluralize

MAX_HEAD = 1 << 18  # bytes, as Chromium takes
UNREAD_MEMORY = 1 << 20  # bytes of a stream that its peer does not read and that stay in memory
PIECE = 1 << 14  # bytes; a frame that every peer takes (RFC 9113, 4.2)

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_STATUS = re.compile(rb"[1-9][0-9]{2}")
_BREAKS = re.compile(rb"[\0\r\n]")
_OF_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})  # RFC 9113, 8.2.2

Fields = list[tuple[bytes, bytes]]


class OwnConnections(_http2.Http2Connection):
    """Speak HTTP/2 by this recorder's class of connections, with a configuration for each of them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        settings = self.h2_conn.local_settings
        self.h2_conn = proxy_of(context).master.classes(BufferedH2Connection)(copy.copy(self.h2_conf))
        self.h2_conn.local_settings.enable_push = settings.enable_push
        self.h2_conn.local_settings.acknowledge()


class LongHeads(_http2.Http2Connection):
    """Take and send heads as long as browsers send them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        self.h2_conn.local_settings.max_header_list_size = MAX_HEAD
        self.h2_conn.local_settings.acknowledge()
        self.h2_conn.decoder.max_header_list_size = MAX_HEAD
        self.h2_conn.encoder.huffman_coder = LinearHuffman()


class RefusedConnections(_http2.Http2Server):
    """Report a client's connection that mitmproxy ends, with all that is under way on it, for a breach of rules."""

    def protocol_error(self, message: str, *code: Any) -> Commands:
        proxy_of(self.context).master.refused(f"a connection was ended: {message}")
        return super().protocol_error(message, *code)


# Answers


def readable_fields(fields: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the fields of an answer as browsers read them. Raises Unreadable for one that they refuse."""
    found: Fields = []
    lengths: list[bytes] = []
    for name, value in fields:
        if name[:1] == b":":
            if name == b":status":
                if found or _STATUS.fullmatch(value) is None:
                    raise Unreadable("its fields do not begin with exactly one status")
                found.append((name, value))
            continue
        _check(name, value)
        if name == b"content-length":
            lengths.append(value.strip(b" \t"))
        elif name not in _OF_CONNECTION:
            found.append((name, value.strip(b" \t")))
    if not found or found[0][0] != b":status":
        raise Unreadable("its fields do not begin with exactly one status")
    if len(set(lengths)) == 1 and lengths[0].isdigit():  # else END_STREAM alone ends the body
        found.append((b"content-length", lengths[0]))
    return found


def readable_trailers(fields: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return trailers as browsers read them. Raises Unreadable."""
    for name, value in fields:
        _check(name, value)
    return [(name, value.strip(b" \t")) for name, value in fields if name not in _OF_CONNECTION]


def _check(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None or name == b"transfer-encoding":
        raise Unreadable(f"it has a field that HTTP/2 forbids: {name[:60].decode('latin-1')!r}")
    if _BREAKS.search(value) is not None:
        raise Unreadable(f"there is a line break or NUL in its field {name[:60].decode()}")


class UncheckedLengths(BufferedH2Connection):
    """Leave the length of an answer to `ResponseFields`, where h2 ends the connection for a wrong one."""

    def _begin_new_stream(self, *args: Any, **more: Any) -> Any:
        stream = super()._begin_new_stream(*args, **more)
        if self.config.client_side:
            stream._initialize_content_length = lambda _: None
        return stream


class ResponseFields(_http2.Http2Client):
    """Read the fields and the length of an answer as browsers do; a broken answer breaks no other."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.h2_conn.config.validate_inbound_headers = False
        self._left: dict[int, int] = {}  # bytes of bodies that are to come, by stream

    def handle_h2_event(self, event: Any) -> Commands:
        try:
            if isinstance(event, h2.events.ResponseReceived):
                event.headers = readable_fields(event.headers)
                self._expect(event)
            elif isinstance(event, h2.events.TrailersReceived):
                event.headers = readable_trailers(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                if event.stream_id in self._left:
                    self._left[event.stream_id] -= len(event.data)
            elif isinstance(event, h2.events.StreamEnded):
                if left := self._left.pop(event.stream_id, 0):
                    size = pluralize(abs(left), "byte")
                    raise Unreadable(f"its body has {size} {'less' if left > 0 else 'more'} than it says")
            elif isinstance(event, h2.events.StreamReset):
                self._left.pop(event.stream_id, None)
        except Unreadable as why:
            self._left.pop(event.stream_id, None)
            return fail_stream(self, event.stream_id, str(why))
        return super().handle_h2_event(event)

    def _expect(self, event: h2.events.ResponseReceived) -> None:
        (_, status), *fields = event.headers
        length = fields[-1][1] if fields and fields[-1][0] == b"content-length" else None
        stream = self.h2_conn.streams.get(event.stream_id)
        bodiless = status in (b"204", b"304") or stream is None or stream.request_method == b"HEAD"
        if length is None or bodiless:
            return
        if event.stream_ended is not None and int(length):
            raise Unreadable(f"its body has {pluralize(int(length), 'byte')} less than it says")
        self._left[event.stream_id] = int(length)


class ResetResponses(_http2.Http2Client):
    """Tell an origin's reset from a client's; send a request again that the origin has refused unseen.

    A whole answer stays whole: an origin may then say that no more of the request need be sent (RFC 9113, 8.1).
    """

    def handle_h2_event(self, event: Any) -> Commands:
        if isinstance(event, h2.events.StreamReset):
            return self._reset(event)
        inner: Commands = super().handle_h2_event(event)
        return self._end(event.stream_id, inner) if isinstance(event, h2.events.StreamEnded) else inner

    def _reset(self, event: h2.events.StreamReset) -> Commands:
        if event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM:
            yield from fail_unprocessed(self, event.stream_id, "the origin refused the request")
        try:
            code = h2.errors.ErrorCodes(event.error_code).name
        except ValueError:
            code = str(event.error_code)
        return (yield from fail_stream(self, event.stream_id, f"the origin reset its stream ({code})"))

    def _end(self, stream: int, inner: Commands) -> Commands:
        done = yield from inner
        self.streams.pop(stream, None)
        return done


class QueuedRequests(_http2.Http2Client):
    """Forget a request that its client takes back while it waits for a free stream.

    Else it is kept until there is one, which an origin that answers nothing never gives, and is sent then.
    """

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, RequestProtocolError) and self.stream_queue.pop(event.stream_id, []):
            return nothing()
        return super()._handle_event(event)


def fail_stream(client: _http2.Http2Client, stream: int, why: str) -> Commands:
    """Fail one exchange; the others of its connection go on. Return False, as `handle_h2_event` must then."""
    if client.streams.pop(stream, None) is not None:
        if not client.is_closed(stream):
            client.h2_conn.reset_stream(stream, h2.errors.ErrorCodes.PROTOCOL_ERROR)
        yield failure(stream, why)
    return False


def fail_unprocessed(client: _http2.Http2Client, stream: int, why: str) -> Commands:
    """Fail a request that the origin has not looked at, so that it is sent again (RFC 9113, 8.7)."""
    if client.streams.get(stream) is _http2.StreamState.HEADERS_RECEIVED:
        return
    client.streams.pop(stream, None)
    client.our_stream_id.pop(client.their_stream_id[stream], None)  # the next time it is another stream
    yield ReceiveHttp(Unanswered(failure(stream, why).event, unprocessed=True))  # type: ignore[arg-type]


# Connections that take no more requests


class GoingAway(h2.events.Event):
    """A peer sends (client) or answers (origin) no more requests than those up to the stream `last`."""

    def __init__(self, last: int) -> None:
        self.last = last


class SoftEnds(BufferedH2Connection):
    """Read a GOAWAY without an error (nginx sends it after a thousand requests) as an event; h2 ends the connection."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> Any:
        if frame.error_code:
            return super()._receive_goaway_frame(frame)
        return [], [GoingAway(frame.last_stream_id)]


class EndingOrigins(_http2.Http2Client):
    """Let an origin that ends a connection answer what it has begun, and send it the rest on a new connection."""

    _is_ending = False

    def handle_h2_event(self, event: Any) -> Commands:
        if isinstance(event, GoingAway):
            return self._close_when_done(self._begin_end(event.last))
        inner: Commands = super().handle_h2_event(event)
        return self._close_when_done(inner) if self._is_ending else inner

    def _close_when_done(self, inner: Commands) -> Commands:
        done = yield from inner
        if not self.streams and not done:
            yield from self.close_connection("the origin ended the connection")
            return True
        return done

    def _begin_end(self, last: int) -> Commands:
        self._is_ending = True
        proxy_of(self.context).ending.add(self.conn)
        why = "the origin ended the connection"
        for stream in [stream for stream in self.streams if stream > last]:
            yield from fail_unprocessed(self, stream, why)
        for theirs in list(self.stream_queue):  # not sent yet, and so without a number here
            del self.stream_queue[theirs]
            self.their_stream_id[-theirs] = theirs
            yield from fail_unprocessed(self, -theirs, why)


class _NewConnection(GetHttpConnection):
    """A wish for a connection that takes requests."""

    ending: set[Connection]

    def connection_spec_matches(self, connection: Connection) -> bool:
        return connection not in self.ending and super().connection_spec_matches(connection)


class OpenConnections(HttpStream):
    """Send no requests on a connection that its origin is ending."""

    def make_server_connection(self) -> Commands:
        ending = proxy_of(self.context).ending
        if not ending:
            return super().make_server_connection()

        def narrow(command: Any) -> list[Any]:
            if type(command) is not GetHttpConnection:
                return [command]
            wish = _NewConnection(command.address, command.tls, command.via, command.transport_protocol)
            wish.ending = ending
            return [wish]

        return replace_commands(super().make_server_connection(), narrow)


class EndingClients(_http2.Http2Server):
    """Answer what a client has asked that asks for nothing more; mitmproxy breaks all of it off."""

    _is_ending = False

    def handle_h2_event(self, event: Any) -> Commands:
        if isinstance(event, GoingAway):
            self._is_ending = True
            return self._close_when_done(nothing())
        return super().handle_h2_event(event)

    def _handle_event(self, event: Any) -> Commands:
        inner: Commands = super()._handle_event(event)
        return self._close_when_done(inner) if self._is_ending else inner

    def _close_when_done(self, inner: Commands) -> Commands:
        yield from inner
        if self._is_ending and not self.h2_conn.open_inbound_streams:
            self._is_ending = False
            yield from self.close_connection("the client ended the connection")
            return True
        return False


# Bodies that nobody reads yet


class UnreadBody:
    """A stream's unread data, on disk beyond the first: a deque of chunks, as far as mitmproxy uses one.

    Chunks from the file come in other pieces than they went in.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._first: deque[SendH2Data] = deque()
        self._size = 0  # bytes of the first chunks
        self._file: BinaryIO | None = None  # the data behind them
        self._read = self._written = 0
        self._last: deque[SendH2Data] = deque()  # behind the file: an end, and what the disk has no room for

    def append(self, chunk: SendH2Data) -> None:
        """Put a chunk behind all others."""
        if not (self._last or self._unread) and self._size + len(chunk.data) <= UNREAD_MEMORY:
            self._first.append(chunk)
            self._size += len(chunk.data)
        elif self._last or chunk.end_stream or not self._write(chunk.data):
            self._last.append(chunk)

    def appendleft(self, chunk: SendH2Data) -> None:
        """Put a piece back at the front."""
        self._first.appendleft(chunk)
        self._size += len(chunk.data)

    def popleft(self) -> SendH2Data:
        """Take the first chunk. Raises IndexError if there is none, OSError if the disk fails."""
        if self._first:
            chunk = self._first.popleft()
            self._size -= len(chunk.data)
            return chunk
        if not self._unread:
            return self._last.popleft()
        assert self._file is not None
        data = os.pread(self._file.fileno(), min(PIECE, self._unread), self._read)
        if not data:
            raise OSError("a file that buffers data for a client is too short")
        self._read += len(data)
        if not self._unread:
            self._read = self._written = 0
            os.ftruncate(self._file.fileno(), 0)
        return SendH2Data(data, False)

    def __bool__(self) -> bool:
        return bool(self._first or self._unread or self._last)

    @property
    def _unread(self) -> int:
        return self._written - self._read

    def _write(self, data: bytes) -> bool:
        """Return True if the disk has taken all of it."""
        left = memoryview(data)
        try:
            if self._file is None:
                made = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 -- see __del__
                self._file = cast(BinaryIO, made)
            while left:
                at = self._written + len(data) - len(left)
                left = left[os.pwrite(self._file.fileno(), left, at) :]
        except OSError:
            return False
        self._written += len(data)
        return True

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


class UnreadBodies(_http2.Http2Connection):
    """Keep what a peer does not read yet on disk, where mitmproxy keeps all of it in memory.

    Not to read it from its origin either would hold back what is archived: a browser that pauses a video never asks
    for the rest.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        directory = proxy_of(context).master.directory
        self.h2_conn.stream_buffers = defaultdict(partial(UnreadBody, directory))  # type: ignore[arg-type]
