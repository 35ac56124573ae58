"""Changes to HTTP/1: origins' answers are read as browsers read them, and what is refused is reported.

Origins send what no standard allows and every browser takes: a line without a colon, a blank before it, the same
Content-Length twice. mitmproxy refuses such an answer, or passes on what others would split differently. Here fields
that no client reads are left out, and the length of the body is said once. What clients read differently is refused.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from logging import DEBUG
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy.connection import ConnectionState
from mitmproxy.http import Headers
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpStream, SendHttp, _events, _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from stillweb.proxy.record.mitmproxy_compat.dispatch import Commands, nothing, proxy_of, replace_commands
from stillweb.snapshots.words import pluralize

REFUSED = (
    "the request was refused: "  # begins the reason of a request that mitmproxy answers itself, with a 400
)
MAX_HEAD = 1 << 20  # bytes; Chromium takes 256 KiB, curl 300 kB
MAX_SLOP = 4  # bytes of the previous answer that may precede a status line, as in Chromium
MAX_LINE = 1 << 14  # bytes of a line between chunks, as in Chromium
MAX_TRAILERS = 1 << 18  # bytes
# transfer codings, RFC 9112, 7.2
PACKED = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"})

_LENGTHS = (b"content-length", b"transfer-encoding")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, 5.6.2
_NAME = re.compile(_TOKEN)
_PLAIN = re.compile(rb"HTTP/1\.[01] [2-9][0-9]{2}(?: [^\r\n\0]*+)?\r\n(?:%b:[^\r\n\0]*+\r\n)*\r\n" % _TOKEN)
_FRAMING = re.compile(rb"\n(?:content-length|transfer-encoding)[^\n]*", re.I)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(?:0|[1-9][0-9]{0,17})[ \t]*\r", re.I)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[ \t]*chunked[ \t]*\r", re.I)
_END = re.compile(rb"\n\r?\n")
_STATUS = re.compile(rb"http(?:/([0-9]+)(?:\.([0-9])[0-9]*)?)?[ \t]+0*([0-9]+)[ \t]*(.*)", re.I | re.S)
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[^\r\n]*\r?\n")
_READABLE = re.compile(rb"[^\s]+ (?:/|http://[^/?#@\s]+/)[\x21-\x7e]* HTTP/1\.[01]\r\n")
_ADDRESS = re.compile(
    rb"([A-Za-z]+) (?:[hH][tT][tT][pP]|[wW][sS])://([\x21-\x7e]+?)((?:[/?#][^\s]*)?) (HTTP/1\.[01])\r?\n"
)
_BARE_IPV6 = re.compile(rb"CONNECT ([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*):([0-9]{1,5}) ")  # httpx asks for tunnels so
# invalid in a head (RFC 9112, 2.2): others may see the line's end there
_BARE_CR = re.compile(rb"\r(?=[^\n])")
_END_OF_HEAD = re.compile(rb"(?<=\n)\r?\n")
_LAST_CHUNK = b"0\r\n\r\n"
_CHUNK_SIZE = re.compile(rb"0*([0-9A-Fa-f]{1,15})")
_TRAILER = re.compile(rb"(%b):[ \t]*([^\r\n\0]*?)[ \t]*" % _TOKEN)
_ENDS = (_events.RequestEndOfMessage, _events.ResponseEndOfMessage)

Fields = tuple[tuple[bytes, bytes], ...]


class Unreadable(Exception):
    """An answer that clients read differently, or not at all. The message says why, and quotes nothing of a body."""


def failure(stream_id: int, why: str) -> ReceiveHttp:
    """Return the command that ends an exchange whose answer is broken."""
    kind = _events.ResponseProtocolError  # its code is a number in mitmproxy 11, an enum in 12
    return ReceiveHttp(kind(stream_id, why, kind.code))


# Heads


def normalized_head(data: bytes) -> bytes | None:
    """Return an answer's bytes with its head put right; None if the head is right, or not complete yet.

    Raises Unreadable.
    """
    plain = _PLAIN.match(data)
    if plain is not None and _has_plain_framing(data, plain.end()):
        return None
    start = data[: MAX_SLOP + 4].lower().find(b"http")
    if start < 0:
        if len(data) < MAX_SLOP + 4:
            return None
        raise Unreadable("its answer is not HTTP/1: it has no status line")
    end = _END.search(data, start)
    if end is None:
        if len(data) > MAX_HEAD:
            raise Unreadable(f"the head of its answer is longer than {MAX_HEAD} bytes")
        return None
    return _normalize(data[start : end.start()]) + data[end.end() :]


def _has_plain_framing(data: bytes, end: int) -> bool:
    """Return True if no field of a head frames the body, or one that can't be misread."""
    found = _FRAMING.findall(data, 0, end)
    if not found:
        return True
    if len(found) > 1:
        return False
    if _LENGTH.fullmatch(found[0]):
        return True
    # HTTP/1.0 has no chunks, nor has an answer without a body
    return data[7:8] == b"1" and data[9:12] != b"204" and _CHUNKED.fullmatch(found[0]) is not None


def _normalize(head: bytes) -> bytes:
    if b"\0" in head:
        raise Unreadable("there is a NUL in the head of its answer")
    first, *lines = [line.removesuffix(b"\r").replace(b"\r", b" ") for line in head.split(b"\n")]
    status = _STATUS.match(first)
    if status is None or not 100 <= int(status[3][:4]) <= 999:
        shown = first[:60].decode("latin-1")
        raise Unreadable(f"the status line of its answer has no status: {shown!r}")
    newer = (int((status[1] or b"1")[:4]), int(status[2] or b"0")) >= (1, 1)
    fields: list[tuple[bytes, bytes]] = []
    dropped = True  # a line that continues a dropped one is dropped, too
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            if not dropped:
                fields[-1] = fields[-1][0], (fields[-1][1] + b" " + line.strip()).strip()
            continue
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        dropped = not colon or _NAME.fullmatch(name) is None
        if not dropped:
            fields.append((name, value.strip(b" \t")))
    fields = _framed(fields, int(status[3]), newer)
    start = b"HTTP/1.%d %d %b" % (newer, int(status[3]), status[4])
    return b"\r\n".join([start, *(name + b": " + value for name, value in fields)]) + b"\r\n\r\n"


def _framed(fields: list[tuple[bytes, bytes]], status: int, newer: bool) -> list[tuple[bytes, bytes]]:
    """Return the fields with at most one that frames the body, as RFC 9112, 6.3 and browsers have it."""
    lengths = _tokens(fields, b"content-length")
    codings = [coding.lower() for coding in _tokens(fields, b"transfer-encoding")]
    others = [field for field in fields if field[0].lower() not in _LENGTHS]
    at = next((n for n, (name, _) in enumerate(fields) if name.lower() in _LENGTHS), 0)
    if status in (204, 304) or status < 200:
        codings = []
    packed = [coding.removeprefix(b"x-") for coding in codings if coding in PACKED]
    if b"chunked" in codings or packed:
        if not newer:
            raise Unreadable(
                "it names a transfer coding in an HTTP/1.0 answer, which clients read differently"
            )
        if packed and (len(packed) > 1 or (lengths and b"chunked" not in codings)):
            raise Unreadable(
                f"its body is compressed by the transfer codings {b', '.join(codings).decode('latin-1')!r}"
            )
        kept = packed + [b"chunked"] * (b"chunked" in codings)
        return [*others[:at], (b"Transfer-Encoding", b", ".join(kept)), *others[at:]]
    if any(not length.isdigit() for length in lengths):
        if len(set(lengths)) > 1:
            raise Unreadable("it gives several lengths of its body, not all of them numbers")
        return others  # the body lasts until the connection ends
    sizes = {int(length) for length in lengths if len(length) < 40}
    if len(sizes) > 1:
        raise Unreadable(f"it gives several lengths of its body: {', '.join(map(str, sorted(sizes)))}")
    return [*others[:at], *((b"Content-Length", b"%d" % size) for size in sizes), *others[at:]]


def _tokens(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the members of a list field, those of all its lines together."""
    values = [value for field, value in fields if field.lower() == name]
    return [token.strip() for value in values for token in value.split(b",") if token.strip()]


class ResponseHeads(_http1.Http1Client):
    """Read the head of an answer as browsers do, and pass over interim answers, as a client may (RFC 9110, 15.2)."""

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived) and self.request:
            try:
                while (head := normalized_head(bytes(self.buf))) is not None:
                    self.buf = type(self.buf)()
                    self.buf += head
                    if not (_INTERIM.match(head) and self.buf.maybe_extract_lines() is not None):
                        break
                    # a turn can end at a command
                    yield commands.Log("An interim answer is passed over.", DEBUG)
            except Unreadable as why:
                yield from self._fail(str(why))
                return
        elif isinstance(event, events.ConnectionClosed) and self.stream_id and self.buf:
            # mitmproxy's message quotes the bytes, which may be credentials
            yield from self._fail(
                f"the head of its answer breaks off after {pluralize(len(self.buf), 'byte')}"
            )
            return
        yield from super().read_headers(event)

    def _fail(self, why: str) -> Commands:
        assert self.stream_id is not None
        if self.conn.state & ConnectionState.CAN_WRITE:
            yield commands.CloseConnection(self.conn)
        yield failure(self.stream_id, why)


def readable_request(head: bytes) -> bytes | None:
    """Return a request's bytes with an address that mitmproxy can read; None if it can read them as they are.

    Clients send UTF-8 unescaped (curl), no path, a user (wget), `ws:` (aiohttp), or an IPv6 address without brackets.
    """
    if (bare := _BARE_IPV6.match(head)) is not None:
        return b"CONNECT [%b]:%b " % bare.groups() + head[bare.end() :]
    if (
        _READABLE.match(head)
        or (found := _ADDRESS.match(head)) is None
        or not (end := _END_OF_HEAD.search(head))
        or _BARE_CR.search(head, 0, end.start())
    ):
        return None
    method, authority, path, version = found.groups()
    path = path.partition(b"#")[0]
    lines = head[found.end() : end.start()].splitlines()
    others = [line for line in lines if not line.lower().startswith(b"host:")]
    authority = authority.rpartition(b"@")[2]
    start = b"%b %b%b %b" % (method, b"" if path.startswith(b"/") else b"/", path, version)
    return b"\r\n".join([start, b"Host: " + authority, *others]) + b"\r\n\r\n" + head[end.end() :]


class RequestHeads(_http1.Http1Server):
    """Read a request behind empty lines (RFC 9112, 2.2), and addresses as clients write them."""

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived):
            head = bytes(self.buf)
            plain = head.lstrip(b"\r\n")
            plain = readable_request(plain) or plain
            if plain != head:
                self.buf = type(self.buf)()
                self.buf += plain
        return super().read_headers(event)


class RefusedHeads(_http1.Http1Server):
    """Refuse a head with a CR alone, and report what mitmproxy refuses, of which no add-on hears."""

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        refused = proxy_of(self.context).master.refused
        if isinstance(event, events.ConnectionClosed):
            if bytes(self.buf).strip():  # not quoted: they may be credentials
                refused("a request was refused: the client closed its connection within a head")
            return super().read_headers(event)

        def report(command: Any) -> list[Any]:
            if isinstance(command, commands.Log):
                refused(f"a request was refused: {command.message}")
            elif isinstance(command, ReceiveHttp) and isinstance(command.event, _events.RequestProtocolError):
                command.event.message = f"{REFUSED}{command.event.message}"
            return [command]

        head = bytes(self.buf)
        end = _END.search(head)
        bare = _BARE_CR.search(head, 0, end.start() if end else len(head))
        return replace_commands(self._refuse_lines() if bare else super().read_headers(event), report)

    def _refuse_lines(self) -> Commands:
        why = "lines must end in CR LF"
        yield commands.SendData(self.conn, _http1.make_error_response(400, why))
        yield commands.CloseConnection(self.conn)
        yield commands.Log(why)
        self.state = self.done


class UnknownDestinations(HttpStream):
    """Report a request without a destination, of which no add-on hears."""

    def state_wait_for_request_headers(self, event: Any) -> Commands:
        def report(command: Any) -> list[Any]:
            error = command.event if isinstance(command, SendHttp) else None
            if isinstance(error, _events.ResponseProtocolError) and self.flow.error is None:
                proxy_of(self.context).master.refused(f"a request was refused: {error.message}")
            return [command]

        return replace_commands(super().state_wait_for_request_headers(event), report)


# Bodies


class ChunkReader:
    """Read a body in chunks as browsers do: extensions unread, lines that end in LF alone, odd trailers.

    A reader such as h11's. `trailers` are complete at the end (RFC 9112, 7.1).
    """

    def __init__(self) -> None:
        self.trailers: Fields = ()
        self._left = 0  # bytes of the chunk
        self._in_line_end = False  # the chunk's data is complete, the line end behind it is not
        self._trailers: list[tuple[bytes, bytes]] | None = None  # behind the last chunk
        self._size = 0  # of the trailers
        self._over = False

    def __call__(self, buffer: Any) -> h11.Data | h11.EndOfMessage | None:
        """Return all data in the buffer, then the end. Raises h11.RemoteProtocolError."""
        data = bytes(buffer.maybe_extract_at_most(len(buffer)) or b"")
        parts: list[bytes] = []
        at = 0
        while not self._over and at < len(data):
            if self._left:
                parts.append(data[at : at + self._left])
                at += len(parts[-1])
                self._left -= len(parts[-1])
                self._in_line_end = not self._left
                continue
            end = data.find(b"\n", at)
            if (end if end >= 0 else len(data)) - at > MAX_LINE:
                raise h11.RemoteProtocolError("a line between its chunks is too long")
            if end < 0:
                break
            self._line(data[at:end].removesuffix(b"\r"))
            at = end + 1
        buffer += data[at:]
        if parts:
            return h11.Data(data=b"".join(parts))
        if not self._over:
            return None
        self.trailers = tuple(self._trailers or ())
        return h11.EndOfMessage()

    def read_eof(self) -> None:
        raise h11.RemoteProtocolError(
            "peer closed connection without sending complete message body (incomplete chunked read)"
        )

    def _line(self, line: bytes) -> None:
        if self._in_line_end:
            if line:
                raise h11.RemoteProtocolError("a chunk is longer than it says")
            self._in_line_end = False
        elif self._trailers is not None:
            self._size += len(line)
            if self._size > MAX_TRAILERS:
                raise h11.RemoteProtocolError("its trailers are too long")
            self._over = not line
            if (field := _TRAILER.fullmatch(line)) is not None:
                self._trailers.append((field[1], field[2]))
        else:
            size = _CHUNK_SIZE.fullmatch(line.partition(b";")[0].rstrip(b" \t"))
            if size is None:
                raise h11.RemoteProtocolError("a chunk does not say how long it is")
            self._left = int(size[1], 16)
            if not self._left:
                self._trailers = []


class ChunkedResponses(_http1.Http1Client):
    """Read chunks as browsers do, where h11 refuses the odd ones."""

    def read_body(self, event: events.Event) -> Commands:
        if isinstance(self.body_reader, ChunkedReader):
            self.body_reader = ChunkReader()  # type: ignore[assignment]
        return super().read_body(event)


class _TrailerReader:
    """A reader of bodies that keeps the `trailers` and ends without them."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.trailers: Fields = ()

    def __call__(self, buffer: Any) -> Any:
        return self._without_trailers(self._reader(buffer))

    def read_eof(self) -> Any:
        return self._without_trailers(self._reader.read_eof())

    def _without_trailers(self, event: Any) -> Any:
        if isinstance(event, h11.EndOfMessage) and event.headers:
            self.trailers = tuple(event.headers.raw_items())
            return h11.EndOfMessage()
        return event


class Trailers(_http1.Http1Connection):
    """Pass trailers on, behind the last chunk and nowhere else."""

    _unsent: Headers | None = None

    def read_body(self, event: events.Event) -> Commands:
        reader: Any = self.body_reader
        if isinstance(reader, ChunkedReader):
            reader = self.body_reader = _TrailerReader(reader)  # type: ignore[assignment]
        elif not isinstance(reader, (ChunkReader, _TrailerReader)):
            return super().read_body(event)
        kind = (
            _events.RequestTrailers if self.ReceiveData is _events.RequestData else _events.ResponseTrailers
        )

        def add_trailers(command: Any) -> list[Any]:
            if reader.trailers and isinstance(command, ReceiveHttp) and isinstance(command.event, _ENDS):
                trailers, reader.trailers = Headers(reader.trailers), ()
                return [ReceiveHttp(kind(command.event.stream_id, trailers)), command]
            return [command]

        return replace_commands(super().read_body(event), add_trailers)

    def send(self, event: Any) -> Commands:
        if isinstance(event, (_events.RequestTrailers, _events.ResponseTrailers)):
            self._unsent = event.trailers
            return nothing()
        if self._unsent is None or not isinstance(event, _ENDS):
            inner: Commands = super().send(event)
            return inner
        # without chunks they have no place, nor in the next message
        trailers, self._unsent = (self._unsent, None)

        def add_trailers(command: Any) -> list[Any]:
            if isinstance(command, commands.SendData) and command.data == _LAST_CHUNK:
                return [commands.SendData(command.connection, b"0\r\n" + bytes(trailers) + b"\r\n")]
            return [command]

        return replace_commands(super().send(event), add_trailers)


class FailuresAfterContinue(_http1.Http1Server):
    """Send the 502 of an origin that can't be reached also where mitmproxy has sent its own 100 (Continue) before."""

    def send(self, event: Any) -> Commands:
        if isinstance(event, _events.ResponseHeaders) and event.response.status_code == 100:
            return self._continue(event)
        return super().send(event)

    def _continue(self, event: _events.ResponseHeaders) -> Commands:
        yield from super().send(event)
        self.response = None  # the answer itself is to come


class BrokenConnections(ProxyConnectionHandler):
    """Note why a connection ended without the other side's saying so."""

    def server_event(self, event: events.Event) -> Coroutine[Any, Any, None]:
        if isinstance(event, events.ConnectionClosed) and event.connection in self.transports:
            reader: Any = self.transports[event.connection].reader
            if (error := reader.exception()) is not None:
                proxy_of(self.layer.context).broken[event.connection] = error
        return super().server_event(event)


class BrokenBodies(_http1.Http1Connection):
    """Fail a body of unknown length if its connection broke instead of being closed."""

    def read_body(self, event: events.Event) -> Commands:
        if isinstance(event, events.ConnectionClosed):
            why = proxy_of(self.context).broken.get(self.conn)
            if why is not None:
                return self._fail_body(f"the connection broke off within a body ({why})")
        return super().read_body(event)

    def _fail_body(self, why: str) -> Commands:
        assert self.stream_id is not None
        error = self.ReceiveProtocolError
        yield commands.CloseConnection(self.conn)
        yield ReceiveHttp(error(self.stream_id, f"HTTP/1 protocol error: {why}", error.code))
