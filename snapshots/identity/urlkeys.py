"""Index keys in the dialect that other tools read; they find candidates, the lossless key decides.

SURT as in the `surt` package, applied to the canonical URL, so that equal canonical requests have equal index
keys. Requests that are no GET carry `__wb_method` and a digest of their body in the query, in the form that
pywb and warcio.js write (`true`, `null`, `44`; at most 4,096 characters of body).
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote_plus, urlencode

from stillweb.snapshots.http.bodies import EMPTY, FORM, JSON, MULTIPART, Body

MAX_BODY = 4096
LONGEST_KEPT = 4096  # characters of a URL for which what was found out is remembered: of longer ones it would be gigabytes

_UNSAFE = re.compile(r"[^\x21-\x7e]+")


def surt(url: str) -> str:
    """Return the SURT of a canonical URL, one line without spaces."""
    return _kept_surt(url) if len(url) <= LONGEST_KEPT else _surt(url)


def _surt(url: str) -> str:
    if not url.startswith(("http://", "https://", "ws://", "wss://", "ftp://")):
        # urn:, data:, and whatever no parser understood: as it is. The surt package would ask DNS for some.
        return escape(url)
    if (plain := _plain_surt(url)) is not None:
        return plain
    from surt import surt as convert  # costs 80 ms to import

    try:
        return escape(convert(url))
    except (ValueError, AssertionError, AttributeError):
        return escape(url)


_kept_surt = lru_cache(maxsize=1 << 16)(_surt)

# An IPv4 address and a port as WHATWG's parser writes them; one that may be the scheme's own is left to it.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
PORT = r":(?!(?:80|443)/)(?:[1-5][0-9]{4}|[1-9][0-9]{0,3})(?=/)"

# What the surt package only lowers, reverses and sorts: no usual port, escape, session id or dot segment.
_PLAIN = re.compile(
    rf"https?://(?:(?:www[0-9]*\.)?((?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*)|({IPV4}))({PORT})?"
    r"(/[A-Za-z0-9._~/-]*)(?:\?([A-Za-z0-9._~=&-]+))?"
)
_SPECIAL = re.compile(r"//|/\.|&&|sid|cfid|aspsession")


def _plain_surt(url: str) -> str | None:
    """The SURT of most URLs, a tenth of the package's time; None for those that need more thought."""
    found = _PLAIN.fullmatch(url)
    if found is None:
        return None
    name, address, port, path, query = found.groups()
    host = name or address
    path = path.lower()
    rest = path if query is None else f"{path}?{(query := query.lower())}"
    if host.startswith("www") or _SPECIAL.search(rest) or url.endswith("&"):
        return None
    if path.endswith("/") and path != "/":
        path = path[:-1]
    key = f"{_turned(host)}{port or ''}){path}"
    if query is None:
        return key
    if "&" in query:
        query = "&".join(
            ["=".join(pair) for pair in sorted([pair.split("=", 1) for pair in query.split("&")])]
        )
    return f"{key}?{query}"


@lru_cache(maxsize=1 << 12)
def _turned(host: str) -> str:
    return ",".join(reversed(host.split(".")))


def escape(text: str) -> str:
    """Text with everything percent-encoded that may not stand in an index line."""
    return _UNSAFE.sub(lambda m: quote(m[0].encode("utf-8", "surrogatepass"), safe=""), text)


def path_prefix(url: str) -> str:
    """The SURT of a canonical URL without its query.

    Every capture of the same scheme-less host and path, whatever its query, method and body, has this as
    its index key or has an index key that starts with it and `?`.
    """
    return surt(url.partition("?")[0])


def request_urlkey(method: str, url: str, body: Body, raw: bytes) -> str:
    """The index key of a request with the canonical `url`."""
    if method == "GET":
        return surt(url)
    query = f"__wb_method={method}"
    told = _body_query(body, raw)[:MAX_BODY]
    if told:
        query += f"&{told}"
    return _surt(f"{url}{'&' if '?' in url else '?'}{query.replace('#', '%23')}")


def _body_query(body: Body, raw: bytes) -> str:
    if body.kind == EMPTY:
        return ""
    if body.kind == FORM:
        return unquote_plus(raw.decode("latin-1"), encoding="utf-8", errors="replace")
    if body.kind == JSON:
        return urlencode(_flatten(body.value))
    if body.kind == MULTIPART:
        return urlencode([(part.name, part.content) for part in body.value])
    return "__wb_post_data=" + base64.b64encode(raw).decode()


def _flatten(value: Any) -> dict[str, str]:
    """A JSON value as a flat query: leaf names, repeated ones numbered `.2_`, `.3_` …"""
    found: dict[str, str] = {}
    repeated: dict[str, int] = {}
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:  # no recursion: depth is the client's
        name, item = stack.pop()
        if isinstance(item, dict):
            stack.extend(reversed(list(item.items())))
        elif isinstance(item, list):
            stack.extend((name, inner) for inner in reversed(item))
        else:
            key = name
            if name in found:
                repeated[name] = repeated.get(name, 1) + 1
                key = f"{name}.{repeated[name]}_"
            found[key] = _script_text(item)
    return found


def _script_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
