"""Index keys as other tools write them. They find candidates; the lossless key decides.

The keys are SURTs as in the `surt` package, applied to the canonical URL, so that equal canonical requests
have equal index keys. Requests other than GET carry `__wb_method` and their body in the query, in the form
that pywb and warcio.js write (`true`, `null`, `44`; at most 4,096 characters of body).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any
from urllib.parse import parse_qsl, quote, quote_from_bytes, unquote_plus, unquote_to_bytes, urlencode

from stillweb.snapshots.cache import cached
from stillweb.snapshots.http.bodies import EMPTY, FORM, JSON, MULTIPART, Body

MAX_BODY = 4096
POSTED = "__wb_method="  # begins the query that represents a method other than GET and its body

_ESCAPES = re.compile(rb"%(?:25)+")  # nested escapes in one step: else each level costs a pass
_UNSAFE = re.compile(r"[^\x21-\x7e]+")


# An IPv4 address and a port as WHATWG's parser writes them. It also handles ports that may be a default.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
PORT = r":(?!(?:80|443)/)(?:[1-5][0-9]{4}|[1-9][0-9]{0,3})(?=/)"

_PARTS = re.compile(r"(https?|wss?|ftp)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.S)
_AUTHORITY = re.compile(r"(?:.*@)?(?:\[([^\]]*)\]|([^:]*))(?::([0-9]*))?", re.S)
_UNUSUAL_PATH = re.compile(r"//|/\.|[^!-$&-~]")  # empty or dotted segments, characters to escape
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_KEPT = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"  # not escaped, besides letters and digits

_SESSION_NAME = re.compile("sid=|cfid=|aspsessionid", re.I)
# Session ids, which SURT omits. In a query, the last match counts, whatever precedes its name.
_QUERY_SESSIONS = [
    re.compile(rf"(.*){session}(?:&(.*))?", re.I | re.S)
    for session in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
]
_PATH_SESSIONS = [
    re.compile(rf"(.*/){session}/(?=.)", re.S)  # before the name of an .aspx
    for session in (r"\((?:[a-z]\([0-9a-z]{24}\))+\)", r"\([0-9a-z]{24}\)")
]


@cached
def surt(url: str) -> str:
    """Return the SURT of a canonical URL, one line without spaces.

    The rules are those of the `surt` package, which cdxj-indexer and pywb use: host reversed without `www.`,
    default port and user left out, path and query unescaped and escaped once, lower case, query pairs sorted.
    """
    found = _PARTS.fullmatch(url)
    if found is None:  # urn:, data: and text that no parser accepts
        return escape(url)
    scheme, authority, path, query = found.groups()
    name = _AUTHORITY.fullmatch(authority)
    if name is None:
        return escape(url)
    host, port = (name[1] or name[2] or "").lower(), name[3]
    if "%" in host or ".." in host or host.startswith(".") or host.endswith("."):
        host = _escaped_once(host.replace("..", ".").strip("."))
    key = f"{_reversed_host(host)}{f':{port}' if port and port != _DEFAULT_PORTS.get(scheme) else ''}){_path(path)}"
    if key.startswith("urn:"):  # a host of this name with a port: such keys are those of other records
        key = f"urn%3A{key[4:]}"
    query = _query(query) if query else ""
    return f"{key}?{query}" if query else key


@cached
def _reversed_host(host: str) -> str:
    return ",".join(reversed(re.sub(r"\Awww[0-9]*\.", "", host).split(".")))


def _path(path: str) -> str:
    if _UNUSUAL_PATH.search(path):
        kept: list[bytes] = []
        for segment in _unescaped(path).split(b"/")[1:]:
            if segment == b".." and kept:
                kept.pop()
            elif segment != b".":
                kept.append(segment)
        path = _escaped(b"/" + b"/".join([segment for segment in kept[:-1] if segment] + kept[-1:]))
    path = path.lower()
    if "(" in path:
        for pattern in _PATH_SESSIONS:
            if found := pattern.match(path, 0, max(path.rfind(".aspx"), 0)):
                path = found[1] + path[found.end() :]
    return path.removesuffix("/") or "/"


def _query(query: str) -> str:
    if "%" in query or not query.isascii() or " " in query:
        query = _escaped_once(query)
    if _SESSION_NAME.search(query):
        for pattern in _QUERY_SESSIONS:
            if found := pattern.fullmatch(query):
                query = found[1] + (found[2] or "")
    query = query.lower()
    if "&" in query:
        query = "&".join("=".join(pair) for pair in sorted(pair.split("=", 1) for pair in query.split("&")))
    return query


def _escaped_once(text: str) -> str:
    return _escaped(_unescaped(text))


def _unescaped(text: str) -> bytes:
    """Percent-decode a text until nothing is left to decode."""
    data = _ESCAPES.sub(b"%", text.encode("utf-8", "surrogatepass"))
    while (once := unquote_to_bytes(data)) != data:
        data = _ESCAPES.sub(b"%", once)
    return data


def _escaped(data: bytes) -> str:
    return quote_from_bytes(data, safe=_KEPT)


def escape(text: str) -> str:
    """Percent-encode all characters that an index line can't hold."""
    return _UNSAFE.sub(lambda m: quote(m[0].encode("utf-8", "surrogatepass"), safe=""), text)


def path_prefix(url: str) -> str:
    """Return the SURT of a canonical URL without its query.

    Every capture with the same host and path, whatever its scheme, query, method and body, has this index
    key, or one that starts with it and `?`.
    """
    return surt(url.partition("?")[0])


def request_urlkey(method: str, url: str, body: Body, raw: bytes) -> str:
    """Return the index key of a request with the canonical `url`."""
    if method == "GET":
        return surt(url)
    query = f"{POSTED}{method}"
    posted = _body_query(body, raw, MAX_BODY)[:MAX_BODY]
    if posted:
        query += f"&{posted}"
    return surt(f"{url}{'&' if '?' in url else '?'}{query.replace('#', '%23')}")


def posted_pairs(query: Iterable[str], method: str, body: Body, raw: bytes) -> list[tuple[str, str]]:
    """Return the pairs of the query under which ArchiveWeb.page keeps a request that is no GET."""
    posted = raw.decode("latin-1") if body.kind == FORM else _body_query(body, raw)
    return query_pairs("&".join((*query, f"{POSTED}{method}", posted)))


def query_pairs(query: str) -> list[tuple[str, str]]:
    """Return the decoded pairs of a query with their values, sorted."""
    return sorted(parse_qsl(query))


def _body_query(body: Body, raw: bytes, most: int | None = None) -> str:
    """Return the query that represents a body in an index key: all of it, or at least its first `most` characters."""
    if body.kind == EMPTY:
        return ""
    if body.kind == FORM:  # a character has up to four bytes, each of which may be escaped
        return unquote_plus(raw[: most and 12 * most].decode("latin-1"), encoding="utf-8", errors="replace")
    if body.kind == JSON:
        return urlencode(_flatten(body.value, most))
    if body.kind == MULTIPART:
        return urlencode([(part.name, part.content[:most]) for part in body.value[:most]])
    return "__wb_post_data=" + base64.b64encode(raw[:most]).decode()


def _flatten(value: Any, most: int | None) -> dict[str, str]:
    """Flatten a JSON value to a query of at most so many leaves: leaf names, with repeated ones numbered `.2_`, `.3_`, …."""
    found: dict[str, str] = {}
    repeated: dict[str, int] = {}
    stack: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    while stack and len(found) != most:  # no recursion: the client chooses the depth
        name, item = next(stack[-1], (None, None))
        if name is None:
            stack.pop()
        elif isinstance(item, dict):
            stack.append(iter(item.items()))
        elif isinstance(item, list):
            stack.append(zip(repeat(name), item))
        else:
            key = name
            if name in found:
                repeated[name] = repeated.get(name, 1) + 1
                key = f"{name}.{repeated[name]}_"
            found[key] = _script_text(item)[:most]
    return found


def _script_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def site_prefix(site: str) -> str:
    """Return the start of the index keys of a site's captures; other sites may share it."""
    return surt(f"http://{site}/").rpartition(")")[0]
