"""Normalized spellings: the escapes of a URL, and JSON in its query."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import quote_from_bytes

from stillweb.snapshots.http.bodies import JSON, canonical_body, form_pairs, typed_body
from stillweb.snapshots.identity.keys import ParsedRequest

BLANK = "\x00"  # the mark for a blanked value; no URL or form has an unescaped NUL

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Characters that clients escape in a path or not, and servers read alike. `;` begins a parameter.
_ALIKE = _UNRESERVED | frozenset("!$&'()*+,=:@[]|^")
PLAIN = r"[A-Za-z0-9._~-]+(?:=[A-Za-z0-9._~-]*)?"  # a pair without escapes
_PLAIN = re.compile(PLAIN)
_JSON = re.compile(r"\{|\[|%7b|%5b", re.IGNORECASE)  # start of an object or array


def one_escape(text: str) -> str:
    """Normalize the escapes of a URL before its query: decode all that mean the same, others in upper case."""
    return _ESCAPE.sub(_unreserved, text)


def with_one_escape(parsed: ParsedRequest) -> ParsedRequest:
    """Return a request with normalized escapes in its URL, or `parsed` itself if nothing changes."""
    url = one_escape(parsed.url)
    query = parsed.query
    if query is not None:
        query = tuple(_encoded(pair) for pair in query)
    return parsed if url == parsed.url and query == parsed.query else replace(parsed, url=url, query=query)


def with_one_json(parsed: ParsedRequest) -> ParsedRequest:
    """Return a request with the JSON objects and arrays of its query as RFC 8785, or `parsed` itself."""
    if parsed.query is None:
        return parsed
    query = tuple(_json(pair) for pair in parsed.query)
    return parsed if query == parsed.query else replace(parsed, query=query)


def _unreserved(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _ALIKE else match[0].upper()


def _encoded(pair: str) -> str:
    if _PLAIN.fullmatch(pair) or BLANK in pair:
        return pair
    item = form_pairs(pair.encode("utf-8", "surrogatepass"))[0] if "&" not in pair else None
    if item is None or item.raw:
        return pair
    name, value = quote_from_bytes(item.name, safe=""), quote_from_bytes(item.value, safe="")
    return f"{name}={value}" if item.equals else name


def _json(pair: str) -> str:
    name, _, value = pair.partition("=")
    if _JSON.match(value) is None:
        return pair
    item = form_pairs(pair.encode("utf-8", "surrogatepass"))[0]
    body = typed_body(item.value, "application/json")
    if item.raw or body.kind != JSON:  # odd JSON is kept: two parsers may understand it differently
        return pair
    return f"{name}={quote_from_bytes(canonical_body(body), safe='')}"
