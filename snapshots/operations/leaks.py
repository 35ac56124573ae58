"""The redaction gate: a search through a whole snapshot for values that still look like secrets.

The recorder replaces secrets as it learns them. This search applies the same rules to the finished snapshot,
and to foreign archives. It reports, and changes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stillweb.snapshots.http import encodings
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets import detect
from stillweb.snapshots.secrets.redact import BINARY, TEXTUAL, Redactor

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot

PIECE = 1 << 20
VIEWED = ("dom", "aria", "text", "pageinfo", "files")  # resources of a view that hold text
_JSON: Headers = (("Content-Type", "application/json"),)
_SHAPE = ("content-type", "content-encoding")  # fields that give a body's format
MOST = 1000  # secrets that are named of a body: the rest of a file of nothing else is not searched
OVERLAP = 1 << 13  # longer than any known format except private keys, which are recognised by their start


@dataclass(frozen=True, slots=True)
class Leak:
    """A value that looks like a secret: its kind, record, part of the record, and first characters."""

    kind: str
    url: str
    file: str
    offset: int
    part: str  # "request header X", "request body", "url", "response header X", "response body"
    sample: str

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}: {self.kind} in {self.part} of {self.url}: {self.sample}"


def scan(snapshot: Snapshot, *, progress: Callable[[int], None] | None = None) -> list[Leak]:
    """Return every suspected secret in a snapshot, by file and offset; empty if the gate may open.

    It finds private keys and well-known key and token formats anywhere; and credentials in headers, session
    cookies, named query values and form fields, unless they are pseudonyms. Views, web socket messages and
    failed requests are searched, too; for them `file` names the record.
    """
    found: list[Leak] = []
    for number, capture in enumerate(snapshot.captures(), 1):
        found += _of_capture(snapshot, capture)
        if progress is not None:
            progress(number)
    finder = _Finder()
    for view in snapshot.views():
        for url in dict.fromkeys((view.url, view.final_url)):
            for part, kind, value in finder.in_request(Request("GET", url)):
                where = public_url(view.url)
                found.append(Leak(kind, where, f"metadata of {where}", 0, f"view's {part}", sample(value)))
        for kind in VIEWED:
            data = snapshot.resource(kind, view.address)
            for what, value in in_bytes([data]) if data else ():
                found.append(
                    Leak(
                        what,
                        public_url(view.url),
                        f"urn:{kind}:{view.address}",
                        0,
                        f"view's {kind}",
                        sample(value),
                    )
                )
    for address, conversation in snapshot.conversations():
        where = public_url(address)
        for part, kind, value in finder.in_request(Request("GET", address, opening_fields(conversation))):
            found.append(Leak(kind, where, f"metadata of {where}", 0, f"web socket's {part}", sample(value)))
        for number, (mine, data) in enumerate(messages_of_socket(conversation), 1):
            held = finder.in_body(Request("POST", "", _JSON, data)) if mine else in_bytes([data])
            for kind, value in held:
                found.append(
                    Leak(
                        kind, where, f"metadata of {where}", 0, f"web socket message {number}", sample(value)
                    )
                )
    for failure in snapshot.failures():
        where, given = public_url(failure.request.url), failure.proxy_response
        for part, kind, value in finder.in_request(failure.request):
            found.append(Leak(kind, where, f"metadata of {where}", 0, part, sample(value)))
        for kind, value in in_bytes([f"{failure.message}\n{given.body if given else ''}".encode()]):
            found.append(Leak(kind, where, f"metadata of {where}", 0, "reason of its failure", sample(value)))
    unique = {(leak.kind, leak.file, leak.offset, leak.part, leak.sample): leak for leak in found}
    return sorted(
        unique.values(), key=lambda leak: (leak.file, leak.offset, leak.part, leak.kind, leak.sample)
    )


def _of_capture(snapshot: Snapshot, capture: Capture) -> Iterator[Leak]:
    def leak(kind: str, part: str, value: str) -> Leak:
        return Leak(kind, public_url(capture.url), capture.filename, capture.offset, part, sample(value))

    request = Request(capture.method, capture.url)
    if capture.request_offset >= 0:
        request = replace(snapshot.read_request(capture), url=capture.url)
    finder = _Finder()
    for part, kind, value in finder.in_request(request):
        yield leak(kind, part, value)
    headers = snapshot.head(capture).headers
    for part, kind, value in finder.in_headers("response", headers):
        yield leak(kind, part, value)
    mime = capture.mime or "text/"
    if TEXTUAL.search(mime) or BINARY.search(mime):
        found = enumerate(in_bytes(body_pieces(snapshot, capture, headers)), 1)
        for number, (kind, value) in found:
            yield leak(kind, "response body", value)
            if number == MOST:
                yield leak(f"more than {MOST} secrets; the rest is not searched", "response body", "")
                break


class _Finder(Redactor):
    """A redactor that collects what the recorder would have replaced, and replaces nothing."""

    def __init__(self) -> None:
        super().__init__(b"")
        self._found: list[tuple[str, str]] = []

    def found(self, kind: str, secret: str) -> str:
        """Note a secret, and keep it unchanged."""
        if len(self._found) < MOST:
            self._found.append((kind, secret))
        return secret

    def _taken(self) -> list[tuple[str, str]]:
        found, self._found = self._found, []
        return found

    def in_request(self, request: Request) -> Iterator[tuple[str, str, str]]:
        """Yield part, kind and value of suspected secrets in a request."""
        self.url(request.url)
        yield from (("url", *one) for one in self._taken())
        yield from self.in_headers("request", request.headers)
        yield from (("request body", *one) for one in self.in_body(request))

    def in_headers(self, side: str, headers: Headers) -> Iterator[tuple[str, str, str]]:
        """Yield part, kind and value of suspected secrets in header fields."""
        for field in headers:
            self.headers((field,))
            yield from ((f"{side} header {field[0]}", *one) for one in self._taken())

    def in_body(self, request: Request) -> list[tuple[str, str]]:
        """Return kind and value of suspected secrets in a client's body."""
        self.request(
            replace(request, url="", headers=tuple(h for h in request.headers if h[0].lower() in _SHAPE))
        )
        return [*self._taken(), *_private_keys(request.body)]


def body_pieces(snapshot: Snapshot, capture: Capture, headers: Headers) -> Iterator[bytes]:
    """Yield a response body, decoded by its headers; then also as stored, if decoding fails."""
    encoding = next((value for name, value in headers if name.lower() == "content-encoding"), None)
    with snapshot.open_body(capture) as body:
        try:
            yield from encodings.decode_pieces(iter(lambda: body.read(PIECE), b""), encoding)
            return
        except encodings.EncodingProblem:
            pass
    with snapshot.open_body(capture) as body:
        yield from iter(lambda: body.read(PIECE), b"")


def messages_of_socket(conversation: Mapping[str, Any]) -> Iterator[tuple[bool, bytes]]:
    """Yield a web socket's messages: True if the client sent it, and its bytes; last the close reason.

    `conversation` is the metadata record. Messages that can't be read are skipped.
    """
    for one in conversation["messages"]:
        if not isinstance(one, dict):
            continue
        if "text" in one:
            data = str(one["text"]).encode("utf-8", "surrogatepass")
        else:
            try:
                data = base64.b64decode(str(one.get("base64", "")))
            except ValueError:
                continue
        yield one.get("from") == "client", data
    close = conversation.get("close")
    if isinstance(close, list) and len(close) == 2:
        yield False, str(close[1]).encode("utf-8", "surrogatepass")


def opening_fields(conversation: Mapping[str, Any]) -> Headers:
    """Return the header fields with which a web socket was opened, as far as they can be read."""
    fields = conversation.get("headers")
    pairs = fields if isinstance(fields, list) else []
    return tuple(
        (str(one[0]), str(one[1])) for one in pairs if isinstance(one, list | tuple) and len(one) == 2
    )


def in_bytes(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield kind and value of private keys, well-known formats and named secrets in a streamed response."""
    kept = b""
    head = b""  # the first line, which names a table's columns
    seen: set[bytes] = set()  # digests: a body that unpacks to gigabytes repeats itself
    for piece in pieces:
        data = kept + piece
        digest = blake2b(data, digest_size=16).digest()
        kept = data[-OVERLAP:]
        if digest in seen:
            continue
        seen.add(digest)
        head = head or data[: data.find(b"\n") + 1]
        # the end of a piece is searched again with the next one; `scan` removes the duplicates
        for kind, found in detect.known_formats(data):
            yield kind, found.decode("latin-1")
        for begin, end in detect.user_info(data):
            if not detect.PSEUDONYM.search(data, begin, end):
                yield "password", data[begin:end].decode("utf-8", "replace")
        table = head + data[data.find(b"\n") + 1 :]
        for one in (*detect.in_columns(table, sent=False), *detect.named_secrets(data, sent=False)):
            yield f"member {one.name}", one.value
        yield from _private_keys(data)


def _private_keys(data: bytes) -> Iterator[tuple[str, str]]:
    if b"PRIVATE KEY" in data and (key := detect.PRIVATE_KEY.search(data)):
        yield "private key", key[0][:40].decode("latin-1")


def sample(value: str) -> str:
    """Return the first characters of a secret: enough to find it, too few to use it."""
    return value[: min(6, len(value) // 4 + 1)].replace("\n", " ") + "…"


def public_url(url: str) -> str:
    """Return a URL for a report: scheme, host and path, since the query may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:  # invalid brackets in the host
        return url.partition("?")[0]
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
