"""A sans-io parser of HTTP/1.1 requests (RFC 9112), and a serializer of response heads.

Strict where leniency lets two readers disagree: a request that is not plainly well-formed is refused. One
regular expression over the whole head and one split are as fast from Python as a C parser that calls back for
each field.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from stillweb.proxy.net.addresses import (
    AUTHORITY,
    http_for_ws,
    is_absolute,
    target_text,
    with_host_field,
    without_user,
)
from stillweb.snapshots.request import Headers

PATIENCE = 30.0  # seconds for a request to arrive once begun, and for a slow reader to make progress
MAX_HEAD = 1 << 17
# Header fields and cookies of a request. Browsers send up to 180 cookies; 12,500 held all other clients for 0.4 s.
MAX_FIELDS = 256
MAX_BODY = 1 << 26  # of a request, which must be in memory to be matched
# Characters and bytes of a request or message from which a thread compares it: one of 4 kB takes 20 ms.
LARGE = 1 << 11
TOO_MANY = f"the request has more than {MAX_FIELDS} header fields and cookies"
MAX_CHUNK_LINE = 1 << 12
CHUNKED = b"Transfer-Encoding: chunked\r\n"

_START = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}) ([^\x00-\x20\x7f]+) HTTP/(\d)\.(\d)")
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\x00]*)*")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")
# a line break that is not CR LF, where other readers may see the end of a line
_BARE = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
CREDENTIALS = re.compile(rb"(?im)^proxy-authorization:[ \t]*([^\r\n]*)")


class BadRequest(Exception):
    """A request that can't be answered and ends its connection. `status` is the HTTP status to send."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Message:
    """A parsed request. `named` maps lower-case field names to their last value."""

    method: str
    target: str
    keep_alive: bool
    http10: bool
    headers: Headers
    fields: dict[str, str]
    body: bytes = b""


def url_outside(message: Message) -> str:
    """Return the URL of a request outside a tunnel with an absolute target, as the recorder stores it."""
    target = http_for_ws(message.target.partition("#")[0])
    return with_host_field(without_user(target), message.fields.get("host"))


def url_inside(message: Message, base: str, authority: str) -> str:
    """Return the URL of a request in the tunnel to `authority`, as the recorder stores it.

    `base` is the tunnel's scheme and authority. Raises BadRequest.
    """
    scheme, target = base.partition(":")[0], message.target.partition("#")[0]
    if is_absolute(target):
        return without_user(f"{scheme}:{target.partition(':')[2]}")
    host = message.fields.get("host")
    if host is None:
        if not message.http10:
            raise BadRequest("there is no Host field")
        host = authority
    if not AUTHORITY.fullmatch(host):
        raise BadRequest("malformed Host field")
    return f"{scheme}://{host}{target if target.startswith('/') else '/' + target}"


def too_many(fields: Collection[tuple[str, str]]) -> bool:
    """Return True if a request has more than `MAX_FIELDS` header fields and cookies."""
    cookies = [value.count(";") for name, value in fields if len(name) == 6 and name.lower() == "cookie"]
    return len(fields) + sum(cookies) > MAX_FIELDS


def has_bare_break(data: bytes | bytearray, at: int = 0) -> bool:
    """Return True if the bytes from `at` on contain a line break that is not CR LF."""
    return _BARE.search(data, at) is not None


class Parser:
    """An incremental parser: `feed` takes bytes, `pull` returns complete requests."""

    def __init__(self) -> None:
        self._buffer = b""
        self._gathered = bytearray()  # a head that arrives in small pieces: each piece is scanned once
        self._seen = 0  # bytes of it that were scanned
        self._message: Message | None = None
        self._parts = bytearray()  # of the body; a list of its pieces could take twenty times as much
        self._size = 0  # bytes of the body so far
        self._left = 0  # bytes of the body (or of the chunk) still to come
        self._chunked = False
        self._trailer = False
        self.expects = False  # the client waits for 100 Continue; the sender of that resets this

    @property
    def idle(self) -> bool:
        """Return True between requests, with nothing buffered."""
        return not self._buffer and self._message is None and not self._gathered

    @property
    def buffered(self) -> int:
        """Bytes received and not yet parsed."""
        return len(self._buffer) + len(self._gathered)

    def take(self) -> bytes:
        """Remove and return the bytes that belong to no request, as after a CONNECT."""
        data, self._buffer = self._buffer, b""
        return data

    def unfinished(self) -> Message:
        """Return the unfinished request as far as it is readable, with the method "" if that is not."""
        if self._message is not None:
            return self._message
        data = bytes(self._gathered) or self._buffer
        start = _START.match(data)
        method, target = start.groups()[:2] if start is not None else (b"", b"")
        credentials = CREDENTIALS.search(data.partition(b"\r\n\r\n")[0])
        named = {"proxy-authorization": credentials[1].decode("latin-1")} if credentials is not None else {}
        return Message(method.decode("ascii"), target_text(target), False, False, (), named)

    @property
    def headless(self) -> bool:
        """Return True if no complete head has arrived."""
        return self._message is None

    def feed(self, data: bytes) -> None:
        if self._gathered:
            self._gathered += data
        else:
            self._buffer = self._buffer + data if self._buffer else data

    def pull(self) -> Message | None:
        """Return the next complete request, None if more bytes are needed. Raises BadRequest."""
        if self._message is None and not self._head():
            return None
        if not self._body():
            return None
        message = self._message
        assert message is not None
        if self._parts:
            message.body = bytes(self._parts)
            self._parts = bytearray()
        self._message = None
        self.expects = False
        return message

    def _head(self) -> bool:
        if self._gathered:
            found = self._gathered.find(b"\r\n\r\n", max(0, self._seen - 3))
            if found < 0:
                self._look(self._gathered)
                return False
            self._buffer, self._gathered, self._seen = bytes(self._gathered), bytearray(), 0
        data = self._buffer
        if data[:2] == b"\r\n" or data[:1] == b"\n":  # RFC 9112, 2.2: empty lines before a request
            data = self._buffer = data.lstrip(b"\r\n")
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if data and data != b"\r":
                self._look(data)
                self._buffer, self._gathered = b"", bytearray(data)
            return False
        if end > MAX_HEAD:
            raise BadRequest("the head of the request is too long", 431)
        start = _START.match(data, 0, end)
        if start is None:
            raise BadRequest("malformed request line")
        fields_end = _FIELDS.match(data, start.end(), end)
        if fields_end is None or fields_end.end() != end:
            raise BadRequest("malformed header fields")
        method, target, major, minor = start.groups()
        if major != b"1":
            raise BadRequest("only HTTP/1.0 and HTTP/1.1 are spoken here", 505)
        headers: list[tuple[str, str]] = []
        named: dict[str, str] = {}
        if start.end() < end:
            for line_text in data[start.end() + 2 : end].decode("latin-1").split("\r\n"):
                name, _, value = line_text.partition(":")
                value = value.strip(" \t")
                headers.append((name, value))
                lower = name.lower()
                if lower in named and lower in _SINGLE and named[lower] != value:
                    raise BadRequest(f"two different {name} fields")
                if lower in named and lower == "transfer-encoding":
                    raise BadRequest("two Transfer-Encoding fields")
                named[lower] = value
        if too_many(headers):
            raise BadRequest(TOO_MANY, 431)
        http10 = minor == b"0"
        connection = named.get("connection", "").lower() or named.get("proxy-connection", "").lower()
        keep_alive = ("keep-alive" in connection) if http10 else ("close" not in connection)
        text = target_text(target)  # as the recorder reads it
        self._message = Message(method.decode("ascii"), text, keep_alive, http10, tuple(headers), named)
        self._buffer = data[end + 4 :]
        self._frame(named, http10)
        return True

    def _look(self, data: bytes | bytearray) -> None:
        """Refuse an incomplete head that can't become a valid one."""
        if len(data) > MAX_HEAD:
            raise BadRequest("the head of the request is too long", 431)
        if has_bare_break(data, max(0, self._seen - 1)):
            raise BadRequest("lines must end in CR LF")
        if not self._seen and not data[:1].isalpha() and data[0] not in b"!#$%&'*+-.^_`|~0123456789":
            raise BadRequest("this is not an HTTP request")
        self._seen = len(data)

    def _frame(self, named: dict[str, str], http10: bool) -> None:
        """Determine how the body is delimited (RFC 9112, 6)."""
        self._size = self._left = 0
        self._chunked = self._trailer = False
        coding = named.get("transfer-encoding")
        length = named.get("content-length")
        if coding is not None:
            if length is not None or http10:
                raise BadRequest("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
            if coding.lower() != "chunked":
                raise BadRequest(f"transfer coding {coding!r} is not known", 501)
            self._chunked = True
        elif length is not None:
            values = {v.strip(" \t") for v in length.split(",")}
            value = values.pop()
            if values or not (value.isascii() and value.isdigit()) or len(value) > 18:
                raise BadRequest("malformed Content-Length")
            self._left = int(value)
            if self._left > MAX_BODY:
                raise BadRequest("the body of the request is too long", 413)
        expectation = named.get("expect")
        if expectation is not None and not http10:
            if expectation.lower() != "100-continue":
                raise BadRequest("this expectation can't be met", 417)
            self.expects = (self._chunked or self._left > 0) and not self._buffer

    def _body(self) -> bool:
        if not self._chunked:
            if self._left == 0:
                return True
            data = self._buffer
            if len(data) < self._left:
                if data:
                    self._parts += data
                    self._left -= len(data)
                    self._buffer = b""
                return False
            self._parts += data[: self._left]
            self._buffer = data[self._left :]
            self._left = 0
            return True
        data, at = self._buffer, 0
        try:
            while True:
                at, whole = self._chunk(data, at)
                if whole is not None:
                    return whole
        finally:
            self._buffer = data[at:]  # once for all chunks, since there may be very many tiny ones

    def _chunk(self, data: bytes, at: int) -> tuple[int, bool | None]:
        """Consume chunk data or a line at `at`. Return the next position and whether the body is complete.

        The second value is None if there may be more to consume.
        """
        if self._left:  # chunk data and the CR LF after it
            have = min(len(data) - at, self._left)
            content = min(have, max(0, self._left - 2))
            if content:
                self._parts += data[at : at + content]
            tail = data[at + content : at + have]
            closing = b"\r\n"[2 - min(2, self._left - content) :][: len(tail)]
            if tail != closing:
                raise BadRequest("malformed chunk")
            self._left -= have
            return at + have, False if self._left else None
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > MAX_CHUNK_LINE or has_bare_break(data, at):
                raise BadRequest("malformed chunk")
            return at, False
        line = data[at:end]
        if b"\n" in line or b"\r" in line:  # where other readers may see the line's end
            raise BadRequest("malformed chunk")
        if self._trailer:
            self._size += len(line)
            if not line:
                return end + 2, True
            if self._size > MAX_HEAD + MAX_BODY or not _FIELDS.fullmatch(b"\r\n" + line):
                raise BadRequest("malformed trailer")
            return end + 2, None
        digits = line.partition(b";")[0].strip(b" \t")
        if not _HEX.fullmatch(digits) or len(line) > MAX_CHUNK_LINE:
            raise BadRequest("malformed chunk")
        size = int(digits, 16)
        self._size += size
        if self._size > MAX_BODY:
            raise BadRequest("the body of the request is too long", 413)
        if size == 0:
            self._trailer = True
        else:
            self._left = size + 2
        return end + 2, None


_SINGLE = frozenset({"content-length", "transfer-encoding", "host", "expect"})


def head(status: int, reason: str, headers: Headers) -> bytes:
    """Return the head of a response, without the empty line at its end."""
    lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join(lines) + "\r\n"
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # of a field of ours, e.g. an archive's name; recorded fields keep their bytes
        return b"".join(field_bytes(line) + b"\r\n" for line in lines)


def field_lines(fields: Headers) -> bytes:
    return b"".join(field_bytes(f"{name}: {value}") + b"\r\n" for name, value in fields)


def field_bytes(text: str) -> bytes:
    """Encode a part of a head: recorded text as Latin-1, byte for byte, anything else as UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
