"""What mitmproxy's HTTP/1 lacks, put in while a recorder runs: interim answers, trailers and answers as browsers read them.

mitmproxy 11 takes a 103 (or an unasked 100) for the answer itself, and ends a connection that sends trailers. Here
interim answers of an origin are passed over, as a client may (RFC 9110, 15.2), and trailers go on to the other side.
Of an answer that breaks the rules it is as lenient as browsers are (`stillweb.proxy.record.heads`, `stillweb.proxy.record.chunks`), where mitmproxy
has only a 502; nor does mitmproxy tell the end of a connection from its breaking off, or an add-on of a request that it
refuses as malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpStream, SendHttp, _events, _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.server import ConnectionHandler

from stillweb.proxy.record.chunks import Chunks
from stillweb.proxy.record.flows import REFUSED
from stillweb.proxy.record.heads import Refused, mended_head
from stillweb.proxy.record.patching import Wrap, Wrapped, altered, wrapped
from stillweb.snapshots.words import counted

_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[^\r\n]*\r?\n")
_READABLE = re.compile(rb"[^\s]+ (?:/|http://[^/?#@\s]+/)[\x21-\x7e]* HTTP/1\.[01]\r\n")
_ADDRESS = re.compile(
    rb"([A-Za-z]+) (?:[hH][tT][tT][pP]|[wW][sS])://([\x21-\x7e]+?)((?:[/?#][^\s]*)?) (HTTP/1\.[01])\r?\n"
)
# an address of version 6 as httpx, for one, asks for its tunnel
_BARE = re.compile(rb"CONNECT ([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*):([0-9]{1,5}) ")
_END_OF_HEAD = re.compile(rb"(?<=\n)\r?\n")
_SAID = "unexpected server response: "  # and what it said
_CLOSED = "Client closed connection before completing request headers: "
_END = b"0\r\n\r\n"
_CONTINUE = 100
_ENDS = (_events.RequestEndOfMessage, _events.ResponseEndOfMessage)
_broken = _events.ResponseProtocolError
_Client, _Server, _Connection = _http1.Http1Client, _http1.Http1Server, _http1.Http1Connection


def _read_headers(original: Wrapped) -> Wrapped:
    """An origin's head, with those of interim answers before it taken away."""

    def read_headers(self: Any, event: events.Event) -> Iterator[Any]:
        if isinstance(event, events.DataReceived) and self.request:
            try:
                while (head := mended_head(bytes(self.buf))) is not None:
                    self.buf = type(self.buf)()
                    self.buf += head
                    if not (_INTERIM.match(head) and self.buf.maybe_extract_lines() is not None):
                        break
            except Refused as why:
                yield commands.CloseConnection(self.conn)
                yield ReceiveHttp(_broken(self.stream_id, str(why), _broken.code))
                return
        broken = f"the head of its answer breaks off after {counted(len(self.buf), 'byte')}"

        def told(command: Any) -> list[Any]:
            error = command.event if isinstance(command, ReceiveHttp) else None
            if isinstance(error, _events.ResponseProtocolError) and error.message.startswith(_SAID):
                error.message = broken
            return [command]

        yield from altered(original(self, event), told)

    return read_headers


def own_form(head: bytes) -> bytes | None:
    """A request's head whose address mitmproxy can't read (UTF-8 unescaped, as curl sends it; no path; a user, as wget
    sends it; `ws:`, as aiohttp asks for a web socket) with path and Host in its place, or (version 6 without brackets) with
    these; None where there is nothing to mend."""
    if (bare := _BARE.match(head)) is not None:
        return b"CONNECT [%b]:%b " % bare.groups() + head[bare.end() :]
    if (
        _READABLE.match(head)
        or (found := _ADDRESS.match(head)) is None
        or not (end := _END_OF_HEAD.search(head))
    ):
        return None
    method, authority, path, version = found.groups()
    path = path.partition(b"#")[0]
    lines = head[found.end() : end.start()].splitlines()
    others = [line for line in lines if not line.lower().startswith(b"host:")]
    authority = authority.rpartition(b"@")[2]
    start = b"%b %b%b %b" % (method, b"" if path.startswith(b"/") else b"/", path, version)
    return b"\r\n".join([start, b"Host: " + authority, *others]) + b"\r\n\r\n" + head[end.end() :]


def _read_request(heard: Callable[[str], None]) -> Wrap:
    """A client's head; that it was refused is told, where mitmproxy only logs it."""

    def told(command: Any) -> list[Any]:
        if isinstance(command, commands.Log):
            why = command.message
            if why.startswith(_CLOSED):  # and what it said: its credentials, perhaps
                why = "the client closed its connection within a head"
            heard(f"a request was refused: {why}")
        elif isinstance(command, ReceiveHttp) and isinstance(command.event, _events.RequestProtocolError):
            command.event.message = f"{REFUSED}{command.event.message}"
        return [command]

    def wrap(original: Wrapped) -> Wrapped:
        def read_headers(self: Any, event: events.Event) -> Iterator[Any]:
            if isinstance(event, events.DataReceived):
                head = bytes(self.buf)
                plain = head.lstrip(b"\r\n")  # RFC 9112, 2.2: empty lines before a request
                plain = own_form(plain) or plain
                if plain != head:
                    self.buf = type(self.buf)()
                    self.buf += plain
            yield from altered(original(self, event), told)

        return read_headers

    return wrap


def _placeless(heard: Callable[[str], None]) -> Wrap:
    """A request that does not say where it is to go: told, where mitmproxy has only a 400."""

    def told(command: Any) -> list[Any]:
        error = command.event if isinstance(command, SendHttp) else None
        if isinstance(error, _broken) and error.message.endswith("destination unknown."):
            heard(f"a request was refused: {error.message}")
        return [command]

    def wrap(original: Wrapped) -> Wrapped:
        def state_wait_for_request_headers(self: Any, event: Any) -> Iterator[Any]:
            yield from altered(original(self, event), told)

        return state_wait_for_request_headers

    return wrap


def _server_event(original: Wrapped) -> Wrapped:
    """What befalls connections. `stillweb_broken` is why one ended without the other side's saying so."""

    def server_event(self: Any, event: events.Event) -> Any:
        if isinstance(event, events.ConnectionClosed) and event.connection in self.transports:
            reader = self.transports[event.connection].reader
            event.connection.stillweb_broken = reader.exception()  # type: ignore[attr-defined]
        return original(self, event)

    return server_event


class _Trailing:
    """A reader of bodies that hands trailers to `found` and ends without them."""

    def __init__(self, reader: Any, connection: Any) -> None:
        self._reader = reader
        self._connection = connection
        self.found: tuple[tuple[bytes, bytes], ...] = ()

    def __call__(self, buffer: Any) -> Any:
        return self._plain(self._reader(buffer))

    def read_eof(self) -> Any:
        """See h11's readers. A body that lasts until the connection ends is no whole one where that broke."""
        if (broken := getattr(self._connection, "stillweb_broken", None)) is not None:
            raise h11.RemoteProtocolError(f"the connection broke off within a body ({broken})")
        return self._plain(self._reader.read_eof())

    def _plain(self, event: Any) -> Any:
        if isinstance(event, h11.EndOfMessage) and event.headers:
            self.found = tuple(event.headers.raw_items())
            return h11.EndOfMessage()
        return event


def _read_body(original: Wrapped) -> Wrapped:
    """A body; its trailers are told before its end."""

    def read_body(self: Any, event: events.Event) -> Iterator[Any]:
        if not isinstance(self.body_reader, (_Trailing, Chunks)):
            lenient = isinstance(self, _Client) and isinstance(self.body_reader, ChunkedReader)
            self.body_reader = Chunks() if lenient else _Trailing(self.body_reader, self.conn)
        reader = self.body_reader
        kind = _events.RequestTrailers if isinstance(self, _Server) else _events.ResponseTrailers

        def trailed(command: Any) -> list[Any]:
            if reader.found and isinstance(command, ReceiveHttp) and isinstance(command.event, _ENDS):
                trailers, reader.found = http.Headers(reader.found), ()
                return [ReceiveHttp(kind(command.event.stream_id, trailers)), command]
            return [command]

        yield from altered(original(self, event), trailed)

    return read_body


def _send(original: Wrapped) -> Wrapped:
    """What goes to a peer: trailers come behind the last chunk, and nowhere else."""

    def send(self: Any, event: Any) -> Iterator[Any]:
        if isinstance(event, (_events.RequestTrailers, _events.ResponseTrailers)):
            self.stillweb_trailers = event.trailers
            return
        trailers = None
        # those of a message without chunks have no place, nor in the next message
        if isinstance(event, _ENDS):
            trailers, self.stillweb_trailers = getattr(self, "stillweb_trailers", None), None

        def ended(command: Any) -> list[Any]:
            if trailers and isinstance(command, commands.SendData) and command.data == _END:
                return [commands.SendData(command.connection, b"0\r\n" + bytes(trailers) + b"\r\n")]
            return [command]

        yield from altered(original(self, event), ended)
        # the answer itself is to come, be it mitmproxy's own of an origin that can't be reached
        if isinstance(event, _events.ResponseHeaders) and event.response.status_code == _CONTINUE:
            self.response = None

    return send


def mended(heard: Callable[[str], None]) -> AbstractContextManager[None]:
    """Has it in place while it is open. `heard` is told of requests that were refused."""
    return wrapped(
        [
            (_Client, "read_headers", _read_headers),
            (_Server, "read_headers", _read_request(heard)),
            (HttpStream, "state_wait_for_request_headers", _placeless(heard)),
            (_Connection, "read_body", _read_body),
            (_Client, "send", _send),
            (_Server, "send", _send),
            (ConnectionHandler, "server_event", _server_event),
        ]
    )
