"""The key of a request, version 1: method, URL and typed body, without loss and without guesses.

Two requests have the same `canonical` key exactly if they have the same method, the same URL as WHATWG parses
it with sorted query pairs, and the same body by type: JSON as RFC 8785, a form as a multiset of pairs,
multipart/form-data as a multiset of parts without the boundary, anything else as bytes. Content encodings of
the body are undone: the same body packed at another time or level is other bytes. A GET that opens a
WebSocket differs from one for a page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import ada_url

from stillweb.snapshots.http.bodies import EMPTY, Body, canonical_body, netstring, typed_body, unpack_body
from stillweb.snapshots.identity.urlkeys import IPV4, PORT, path_prefix, request_urlkey, surt
from stillweb.snapshots.request import Remembering, Request

VERSION = 3

# Header fields that replace the method.
METHODS = frozenset(("x-http-method-override", "x-http-method", "x-method-override"))
# METHODS, the field that names the operation in a body, and those that say which part of a thing a body is
OVERRIDES = METHODS | {"soapaction", "content-range", "upload-offset"}

UPGRADE = frozenset(("Upgrade", "upgrade", "UPGRADE"))  # spellings that clients use
WEBSOCKET = "websocket"

NO_BODY = Body(EMPTY)
_USERINFO = re.compile(r"\A(https?://)[^/?#]*@")


class Key(NamedTuple):
    """A request's key. `canonical` and `exact` are hex SHA-256; `urlkey` finds candidates in an index."""

    canonical: str
    exact: str
    urlkey: str


@dataclass(frozen=True, slots=True)
class ParsedRequest(Remembering):
    """A parsed request. `url` is canonical and lacks the query; `query` holds the query's pairs as written.

    `query` is None without a `?`. `operation` holds the header fields that replace the method or open a
    WebSocket.
    """

    method: str
    url: str
    query: tuple[str, ...] | None
    body: Body
    operation: tuple[tuple[str, str], ...] = ()


def canonical_url(url: str) -> str:
    """Return the URL as WHATWG parses it, without fragment, with sorted query pairs.

    A text that is not a URL is kept, without its fragment, after a leading `!`, which no URL has.
    """
    base, query = split_url(url)
    return base if query is None else f"{base}?{'&'.join(sorted(query))}"


def split_url(url: str) -> tuple[str, tuple[str, ...] | None]:
    """Return the canonical URL before its query, and the query's pairs in their order.

    A name and password in the URL are left out: clients send them as a header field (RFC 9110, 4.2.4).
    """
    text = url.partition("#")[0]
    try:
        text = ada_url.normalize_url(text)
        if "@" in text:
            text = _USERINFO.sub(r"\1", text)
    except ValueError:  # raised also for text that UTF-8 can't encode
        text = f"!{text}"
    base, mark, query = text.partition("?")
    return base, tuple(query.split("&")) if mark else None


def parse(request: Request) -> ParsedRequest:
    """Parse a request. Never raises."""
    return request.derived("parsed", _parse)


def _parse(request: Request) -> ParsedRequest:
    base, query = split_url(request.url)
    socket = opens_socket(request)
    if not request.body and request.method in ("GET", "HEAD") and not (socket or overridden(request)):
        return ParsedRequest(request.method, base, query, NO_BODY)
    operation = tuple(sorted((n.lower(), v.strip()) for n, v in request.headers if n.lower() in OVERRIDES))
    if socket:
        operation += (("upgrade", WEBSOCKET),)
    body = typed_body(request.body, request.header("content-type"), request.combined("content-encoding"))
    return ParsedRequest(request.method, base, query, body, operation)


def unpacked_body(request: Request) -> bytes:
    """Return a request's body without its content encodings, or as it is if it can't be decoded."""
    body = unpack_body(request.body, request.combined("content-encoding")) if request.body else None
    return request.body if body is None else body


def overridden(request: Request) -> bool:
    """Return True if a header field of a request replaces its method."""
    return any(n[:2] in ("X-", "x-") and n.lower() in METHODS for n, _ in request.headers)


def opens_socket(request: Request) -> bool:
    """Return True if a request is a WebSocket handshake."""
    return any(n in UPGRADE and v.strip().lower() == WEBSOCKET for n, v in request.headers)


def is_plain(request: Request) -> bool:
    """Return True if a request is a GET whose key depends on its URL only.

    Such a request has no body, no method override and no WebSocket handshake.
    """
    return (
        request.method == "GET" and not request.body and not overridden(request) and not opens_socket(request)
    )


def _method(parsed: ParsedRequest) -> bytes:
    return parsed.method.encode("utf-8", "surrogatepass")


def _operation(parsed: ParsedRequest) -> bytes:
    return repr(parsed.operation).encode("utf-8", "surrogatepass") if parsed.operation else b""


def _address(parsed: ParsedRequest) -> bytes:
    return parsed.url.encode("utf-8", "surrogatepass")


def _query(parsed: ParsedRequest) -> bytes:
    if parsed.query is None:
        return b""
    return ("?" + "&".join(sorted(parsed.query))).encode("utf-8", "surrogatepass")


def _body_type(parsed: ParsedRequest) -> bytes:
    return f"{parsed.body.kind};{parsed.body.label}".encode("utf-8", "surrogatepass")


def _body(parsed: ParsedRequest) -> bytes:
    return canonical_body(parsed.body)


# The parts of the key. Each is needed: tests remove each one and see a wrong answer.
KEY_PARTS: list[Callable[[ParsedRequest], bytes]] = [_method, _operation, _address, _query, _body_type, _body]


def mix(*parts: object) -> int:
    """Return a 64-bit number for `parts`, the same on every machine."""
    return int.from_bytes(
        hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def digest(parsed: ParsedRequest) -> str:
    """Return the canonical key of a parsed request."""
    return parsed.derived("digest", _digest)


def _digest(parsed: ParsedRequest) -> str:
    return hashlib.sha256(canonical_text(parsed)).hexdigest()


def canonical_text(parsed: ParsedRequest) -> bytes:
    """Return the bytes of which the canonical key is the digest."""
    return netstring(b"stillweb key 1", *[part(parsed) for part in KEY_PARTS])


def exact_digest(request: Request, parsed: ParsedRequest) -> str:
    """Return the key of the literal request: method, URL without fragment, body and the body's type."""
    text = netstring(
        b"stillweb exact 1",
        _method(parsed),
        _operation(parsed),
        request.url.partition("#")[0].encode("utf-8", "surrogatepass"),
        _body_type(parsed),
        request.body,
    )
    return hashlib.sha256(text).hexdigest()


# A URL that WHATWG's parser returns unchanged: a lower-case name or a plain IPv4 address, no default port, no
# dot segment (nor %2e), and no character that it would escape. A test compares it with the parser.
_AS_IT_IS = re.compile(
    rf"(https?://(?:(?!(?:[^/]*\.)?xn--)(?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*|{IPV4})(?:{PORT})?"
    r"(?:/(?![.%])[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+)"
    r"(?:\?([A-Za-z0-9._~!$&()*+,;=:@%/?-]*))?"
)


def plain_key(url: str) -> Key | None:
    """Return the key of a GET, in a quarter of the time, or None if the URL needs parsing."""
    parts = _plain_parts(url)
    if parts is None:
        return None
    exact = f"16:stillweb exact 1,3:GET,0:,{len(url)}:{url},6:empty;,0:,"
    return Key(_plain_canonical(*parts), hashlib.sha256(exact.encode()).hexdigest(), surt("".join(parts)))


def _plain_parts(url: str) -> tuple[str, str] | None:
    """Return a URL before its query, and its sorted query with the `?`; None if the URL needs parsing."""
    found = _AS_IT_IS.fullmatch(url)
    if found is None:
        return None
    base, query = found.groups()
    if query is None:
        return base, ""
    return base, f"?{'&'.join(sorted(query.split('&'))) if '&' in query else query}"


def _plain_canonical(base: str, query: str) -> str:
    parts = f"14:stillweb key 1,3:GET,0:,{len(base)}:{base},{len(query)}:{query},6:empty;,0:,"
    return hashlib.sha256(parts.encode()).hexdigest()


def url_canonical(url: str) -> str:
    """Return the canonical key of a plain request for a URL, in half the time of `url_key`."""
    parts = _plain_parts(url)
    return _plain_canonical(*parts) if parts is not None else parsed_key(Request("GET", url)).canonical


def request_key(request: Request) -> Key:
    """Return the key of a request. Never raises.

    Takes about 4 µs for a plain GET, and 12 µs for a request that must be parsed.
    """
    return request.derived("key", _request_key)


def _request_key(request: Request) -> Key:
    return url_key(request.url) if is_plain(request) else parsed_key(request)


def url_key(url: str) -> Key:
    """Return the key of a plain request (see `is_plain`) for a URL."""
    return plain_key(url) or parsed_key(Request("GET", url))


def parsed_key(request: Request) -> Key:
    parsed = parse(request)
    url = parsed.url if parsed.query is None else f"{parsed.url}?{'&'.join(sorted(parsed.query))}"
    urlkey = request_urlkey(parsed.method, url, parsed.body, unpacked_body(request))
    return Key(digest(parsed), exact_digest(request, parsed), urlkey)


def group_prefix(url: str) -> str:
    """Return the index key that all captures of a path begin with: without query and `;` parameters."""
    return path_prefix(split_url(url)[0].partition(";")[0])
