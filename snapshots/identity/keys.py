"""The key of a request, version 1: method, URL and typed body, nothing lost and nothing guessed.

Two requests have the same `canonical` key exactly when they have the same method, the same URL as WHATWG
parses it with its query pairs sorted, and the same body by its type: JSON as RFC 8785, a form as a multiset
of pairs, multipart/form-data as a multiset of parts without its boundary, anything else by its bytes. A GET that asks
for a web socket is another request than one for a page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import ada_url

from stillweb.snapshots.http.bodies import EMPTY, Body, canonical_body, netstring, typed_body
from stillweb.snapshots.identity.urlkeys import IPV4, PORT, request_urlkey, surt
from stillweb.snapshots.request import Request

VERSION = 1

# Fields that replace the method.
METHODS = frozenset(("x-http-method-override", "x-http-method", "x-method-override"))
# These, and the one that names the operation of a body.
OVERRIDES = METHODS | {"soapaction"}

UPGRADE = frozenset(("Upgrade", "upgrade", "UPGRADE"))  # as clients write it
WEBSOCKET = "websocket"

NO_BODY = Body(EMPTY)


class Key(NamedTuple):
    """`canonical` and `exact` are hex SHA-256; `urlkey` finds candidates in an index."""

    canonical: str
    exact: str
    urlkey: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request taken apart. `url` is canonical without its query; `query` holds its pairs as written.

    `query` is None without a `?`. `operation` holds the header fields that replace the method, or that ask for a web socket.
    """

    method: str
    url: str
    query: tuple[str, ...] | None
    body: Body
    operation: tuple[tuple[str, str], ...] = ()


def canonical_url(url: str) -> str:
    """The URL as WHATWG parses it, without fragment, the pairs of its query sorted.

    A text that is no URL stays as it is, marked by a leading `!` that no URL has, without its fragment.
    """
    base, query = split_url(url)
    return base if query is None else f"{base}?{'&'.join(sorted(query))}"


def split_url(url: str) -> tuple[str, tuple[str, ...] | None]:
    """The canonical URL before its query, and the pairs of the query in the order written."""
    text = url.partition("#")[0]
    try:
        text = ada_url.normalize_url(text)
    except ValueError:  # also what can't be written as UTF-8
        text = f"!{text}"
    base, mark, query = text.partition("?")
    return base, tuple(query.split("&")) if mark else None


def parse(request: Request) -> Parsed:
    """A request taken apart. Never raises."""
    base, query = split_url(request.url)
    socket = opens_socket(request)
    if not request.body and request.method in ("GET", "HEAD") and not (socket or overridden(request)):
        return Parsed(request.method, base, query, NO_BODY)
    operation = tuple(sorted((n.lower(), v.strip()) for n, v in request.headers if n.lower() in OVERRIDES))
    if socket:
        operation += (("upgrade", WEBSOCKET),)
    body = typed_body(request.body, request.header("content-type"), request.header("content-encoding"))
    return Parsed(request.method, base, query, body, operation)


def overridden(request: Request) -> bool:
    """Whether a field of a request replaces its method."""
    return any(n[:2] in ("X-", "x-") and n.lower() in METHODS for n, _ in request.headers)


def opens_socket(request: Request) -> bool:
    """Whether a request is the handshake of a web socket."""
    return any(n in UPGRADE and v.strip().lower() == WEBSOCKET for n, v in request.headers)


def is_plain(request: Request) -> bool:
    """Whether a request is a GET whose key its URL alone decides: without a body, its method not replaced, for no socket."""
    return (
        request.method == "GET" and not request.body and not overridden(request) and not opens_socket(request)
    )


def _method(parsed: Parsed) -> bytes:
    return parsed.method.encode("utf-8", "surrogatepass")


def _operation(parsed: Parsed) -> bytes:
    return repr(parsed.operation).encode("utf-8", "surrogatepass") if parsed.operation else b""


def _address(parsed: Parsed) -> bytes:
    return parsed.url.encode("utf-8", "surrogatepass")


def _query(parsed: Parsed) -> bytes:
    if parsed.query is None:
        return b""
    return ("?" + "&".join(sorted(parsed.query))).encode("utf-8", "surrogatepass")


def _body_type(parsed: Parsed) -> bytes:
    return f"{parsed.body.kind};{parsed.body.label}".encode("utf-8", "surrogatepass")


def _body(parsed: Parsed) -> bytes:
    return canonical_body(parsed.body)


# What the key is made of; each part is needed (tests take each away and see a wrong answer).
KEY_PARTS: list[Callable[[Parsed], bytes]] = [_method, _operation, _address, _query, _body_type, _body]


def digest(parsed: Parsed) -> str:
    """The canonical key of a request taken apart."""
    text = netstring(b"stillweb key 1", *[part(parsed) for part in KEY_PARTS])
    return hashlib.sha256(text).hexdigest()


def exact_digest(request: Request, parsed: Parsed) -> str:
    """The key of the literal request: its method, URL text without fragment, body and the body's type."""
    text = netstring(
        b"stillweb exact 1",
        _method(parsed),
        _operation(parsed),
        request.url.partition("#")[0].encode("utf-8", "surrogatepass"),
        _body_type(parsed),
        request.body,
    )
    return hashlib.sha256(text).hexdigest()


# A URL that WHATWG's parser gives back as it is: a lower-case name or a plain IPv4 address, no usual port, no dot
# segment (written %2e neither), and nothing that it would escape. A test holds it against the parser.
_AS_IT_IS = re.compile(
    rf"(https?://(?:(?!(?:[^/]*\.)?xn--)(?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*|{IPV4})(?:{PORT})?"
    r"(?:/(?![.%])[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+)"
    r"(?:\?([A-Za-z0-9._~!$&()*+,;=:@%/?-]*))?"
)


def plain_key(url: str) -> Key | None:
    """The key of a GET of a URL that needs no parsing, a quarter of the time; None for another one."""
    found = _AS_IT_IS.fullmatch(url)
    if found is None:
        return None
    base, query = found.groups()
    canonical = url
    if query is None:
        query = ""
    else:
        if "&" in query:
            query = "&".join(sorted(query.split("&")))
            canonical = f"{base}?{query}"
        query = f"?{query}"
    parts = f"14:stillweb key 1,3:GET,0:,{len(base)}:{base},{len(query)}:{query},6:empty;,0:,"
    exact = f"16:stillweb exact 1,3:GET,0:,{len(url)}:{url},6:empty;,0:,"
    return Key(
        hashlib.sha256(parts.encode()).hexdigest(),
        hashlib.sha256(exact.encode()).hexdigest(),
        surt(canonical),
    )


def request_key(request: Request) -> Key:
    """The key of a request. Never raises; costs about 4 µs for a plain GET, 12 µs for one that must be parsed."""
    return url_key(request.url) if is_plain(request) else parsed_key(request)


def url_key(url: str) -> Key:
    """The key of a plain request (see `is_plain`) for a URL."""
    return plain_key(url) or parsed_key(Request("GET", url))


def parsed_key(request: Request) -> Key:
    """The key of a request, taken apart first."""
    parsed = parse(request)
    url = parsed.url if parsed.query is None else f"{parsed.url}?{'&'.join(sorted(parsed.query))}"
    urlkey = request_urlkey(parsed.method, url, parsed.body, request.body)
    return Key(digest(parsed), exact_digest(request, parsed), urlkey)
