"""The redaction gate: looks through a whole snapshot for what still looks like a secret.

The recorder replaces secrets as it learns them; this looks at the result with fresh eyes, also at archives that
others made. It reports, and changes nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stillweb.snapshots.http import encodings
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets import credentials
from stillweb.snapshots.secrets.redact import COOKIES, PART, TEXTUAL

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot

PIECE = 1 << 20
VIEWED = ("dom", "aria", "text", "pageinfo", "files")  # resources of a view that hold text
OVERLAP = 1 << 13  # longer than any format but a private key, which is told by its beginning
_PAIR = re.compile(r"(?<![^?&;#])([^=&;?#/\s]{1,100})=([^&;#\s]+)")
_MEMBER = re.compile(rb'"([^"\\]{1,100})"\s*:\s*"((?:[^"\\]|\\.){1,4096})"')


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that looks like a secret: what kind, in which record and part of it, and its first characters."""

    kind: str
    url: str
    file: str
    offset: int
    part: str  # "request header X", "request body", "url", "response header X", "response body"
    sample: str

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}: {self.kind} in {self.part} of {self.url}: {self.sample}"


def scan(snapshot: Snapshot, *, progress: Callable[[int], None] | None = None) -> list[Leak]:
    """Every secret that a snapshot seems to hold, by file and offset; empty when the gate may open.

    Private keys, well-known key and token formats anywhere; credentials in headers, session cookies, named query
    values and form fields that are no pseudonyms. What a view shows, what web sockets said and
    requests that failed are looked through, too; there `file` names the record.
    """
    found: list[Leak] = []
    for number, capture in enumerate(snapshot.captures(), 1):
        found += _of_capture(snapshot, capture)
        if progress is not None:
            progress(number)
    for view in snapshot.views():
        for kind in VIEWED:
            data = snapshot.resource(kind, view.address)
            for what, value in in_bytes([data]) if data else ():
                found.append(
                    Leak(
                        what,
                        shown(view.url),
                        f"urn:{kind}:{view.address}",
                        0,
                        f"view's {kind}",
                        sample(value),
                    )
                )
    for address, conversation in snapshot.conversations():
        for number, (mine, data) in enumerate(said(conversation), 1):
            named = in_fields(data, "application/json") if mine else ()
            for what, secret in [*named, *in_bytes([data])]:
                place = f"metadata of {shown(address)}"
                found.append(
                    Leak(what, shown(address), place, 0, f"web socket message {number}", sample(secret))
                )
    for failure in snapshot.failures():
        where, given = shown(failure.request.url), failure.given
        for part, kind, value in _in_request(failure.request):
            found.append(Leak(kind, where, f"metadata of {where}", 0, part, sample(value)))
        for kind, value in in_bytes([f"{failure.told}\n{given.body if given else ''}".encode()]):
            found.append(Leak(kind, where, f"metadata of {where}", 0, "reason of its failure", sample(value)))
    unique = {(leak.kind, leak.file, leak.offset, leak.part, leak.sample): leak for leak in found}
    return sorted(
        unique.values(), key=lambda leak: (leak.file, leak.offset, leak.part, leak.kind, leak.sample)
    )


def _of_capture(snapshot: Snapshot, capture: Capture) -> Iterator[Leak]:
    def leak(kind: str, part: str, value: str) -> Leak:
        return Leak(kind, shown(capture.url), capture.filename, capture.offset, part, sample(value))

    request = Request(capture.method, capture.url)
    if capture.request_offset >= 0:
        request = replace(snapshot.read_request(capture), url=capture.url)
    for part, kind, value in _in_request(request):
        yield leak(kind, part, value)
    response_headers = snapshot.head(capture).headers
    for name, kind, value in in_headers(response_headers):
        yield leak(kind, f"response header {name}", value)
    if TEXTUAL.search(capture.mime or "text/"):
        for kind, value in in_bytes(body_pieces(snapshot, capture, response_headers)):
            yield leak(kind, "response body", value)


def _in_request(request: Request) -> Iterator[tuple[str, str, str]]:
    """Part, kind and value of what looks secret in a request."""
    for kind, value in in_url(request.url):
        yield "url", kind, value
    for name, kind, value in in_headers(request.headers):
        yield f"request header {name}", kind, value
    for kind, value in in_fields(request.body, request.header("content-type") or ""):
        yield "request body", kind, value
    for kind, value in in_bytes([request.body]):
        yield "request body", kind, value


def body_pieces(snapshot: Snapshot, capture: Capture, headers: Headers) -> Iterator[bytes]:
    """The body of an answer with these fields, decoded; as it is stored, too, where it is not what they say."""
    encoding = next((value for name, value in headers if name.lower() == "content-encoding"), None)
    with snapshot.open_body(capture) as body:
        try:
            yield from encodings.decode_pieces(iter(lambda: body.read(PIECE), b""), encoding)
            return
        except encodings.EncodingProblem:
            pass
    with snapshot.open_body(capture) as body:
        yield from iter(lambda: body.read(PIECE), b"")


def said(conversation: Mapping[str, Any]) -> Iterator[tuple[bool, bytes]]:
    """What was said over a web socket (its metadata record): whether by the client, and the bytes; then why it was closed."""
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


def in_url(url: str) -> Iterator[tuple[str, str]]:
    """Kind and value of what looks secret in a URL."""
    try:
        password = urlsplit(url).password
    except ValueError:  # brackets that hold no address
        password = None
    if password and not _is_name(password):
        yield "password", password
    for match in _PAIR.finditer(url):
        if credentials.secret_field(match[1], match[2]):
            yield f"value of {match[1]}", match[2]
    for kind, found in credentials.known_formats(url.encode("utf-8", "replace")):
        yield kind, found[0].decode("latin-1")


def in_headers(headers: Headers) -> Iterator[tuple[str, str, str]]:
    """Header name, kind and value of what looks secret in header fields."""
    for name, value in headers:
        lower = name.lower()
        if lower in ("cookie", "set-cookie"):
            parts = COOKIES.split(value)[::2] if lower == "cookie" else [value.partition(";")[0]]
            for part in parts:
                cookie, equals, content = part.partition("=")
                bare = content.strip().strip('"')
                if equals and credentials.secret_cookie(cookie.strip(), bare) and not _is_name(bare):
                    yield name, "session cookie", bare
        elif credentials.secret_header(lower, value):
            yield name, "credential", value.rpartition(" ")[2]
        elif "://" in value or lower in ("location", "referer", "content-location", "link", "refresh"):
            yield from ((name, kind, found) for kind, found in in_url(value))
        else:
            for kind, match in credentials.known_formats(value.encode("utf-8", "replace")):
                yield name, kind, match[0].decode("latin-1")


def in_fields(body: bytes, media: str) -> Iterator[tuple[str, str]]:
    """Kind and value of named form and JSON fields that hold a secret."""
    kind = media.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        for part in PART.finditer(body):
            name, value = part[1].decode("utf-8", "replace"), part[2].decode("utf-8", "replace")
            if len(value) <= 4096 and credentials.secret_field(name, value):
                yield f"field {name}", value
    elif kind.endswith("urlencoded"):
        for match in _PAIR.finditer(body.decode("latin-1")):
            if credentials.secret_field(match[1], match[2]):
                yield f"field {match[1]}", match[2]
    elif "json" in kind or body[:1] in (b"{", b"["):
        for field in _MEMBER.finditer(body):
            name, value = field[1].decode("utf-8", "replace"), field[2].decode("utf-8", "replace")
            if credentials.secret_field(name, value):
                yield f"member {name}", value


def in_bytes(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Kind and value of private keys and well-known formats in a text, read piece by piece."""
    kept = b""
    for piece in pieces:
        data = kept + piece
        # what may go on in the next piece is looked at again there; `scan` counts it once
        for kind, found in credentials.known_formats(data):
            yield kind, found[0].decode("latin-1")
        if b"PRIVATE KEY-----" in data and (key := credentials.PRIVATE_KEY.search(data)):
            yield "private key", key[0][:40].decode("latin-1")
        kept = data[-OVERLAP:]


def _is_name(value: str) -> bool:
    return credentials.PSEUDONYM_TEXT.search(value) is not None


def sample(value: str) -> str:
    """The first characters: enough to find it, too few to use it."""
    return value[: min(6, len(value) // 4 + 1)].replace("\n", " ") + "…"


def shown(url: str) -> str:
    """A URL for a report: without its query, which may be what is secret."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no address
        return url.partition("?")[0]
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
