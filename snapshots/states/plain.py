"""Requests that can neither tell nor change a state, judged by their text alone: the greater part of most recordings.

What is said here without reading an answer is what `stillweb.snapshots.states.state` would find; a test holds one against the other.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stillweb.snapshots.http.fragments import FIELDS
from stillweb.snapshots.identity.keys import OVERRIDES
from stillweb.snapshots.request import Headers
from stillweb.snapshots.states.header_fields import own_of

# A URL that is canonical as it is written and of whose parts no rule thinks, but for the pairs of its query.
PLAIN_URL = re.compile(
    r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]+(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?(\?[A-Za-z0-9._~=&-]*)?"
)
SHORTEST = 8  # characters of a value that a site may have issued; a shorter one is in every page by chance

_STATIC = ("image/", "video/", "audio/", "font/", "text/css", "text/javascript", "application/javascript")
_STATIC_ALL = frozenset(
    {"application/x-javascript", "application/wasm", "application/font-woff", "application/pdf"}
)
FILE_STATUSES = (200, 206, 304)  # of answers that say what a file is
_OPERATIONS = tuple(OVERRIDES)


def static_mime(mime: str) -> bool:
    """Whether a media type is that of a file that pages are made with, not of a page or of data."""
    return mime.startswith(_STATIC) or mime in _STATIC_ALL


def static(method: str, mime: str, status: int) -> bool:
    """Whether an answer is a file that stays as it is, if nothing else was ever answered to its request."""
    return method in ("GET", "HEAD") and static_mime(mime) and status in FILE_STATUSES


def unremarkable(method: str, url: str, headers: Headers, body: bytes, status: int) -> bool:
    """Whether an exchange that is not static says nothing of a state: no choice, login, token or redirect in it."""
    return (
        method in ("GET", "HEAD")
        and not body
        and not 300 <= status < 400
        and plain_headers(headers)
        and plain_url(url)
    )


def plain_url(url: str) -> bool:
    """Whether no rule changes a GET of this URL, and nothing in it can be a value that the site issued."""
    found = PLAIN_URL.fullmatch(url)
    if found is None:
        return False
    query: str | None = found[1]
    if query is None:
        return True
    for pair in query[1:].split("&"):
        name, _, value = pair.partition("=")
        if len(value) >= SHORTEST or "=" in value or not name:
            return False
        if any(shape is None or shape.fullmatch(value) for shape in _shapes(name)):
            return False
    return True


@lru_cache(maxsize=4096)
def _shapes(name: str) -> tuple[re.Pattern[str] | None, ...]:
    """The shapes of values that rules name so in a query; None is any."""
    return tuple(shape for names, shape in _fields() if names.fullmatch(name))


@lru_cache(maxsize=1)
def _fields() -> tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...]:
    from stillweb.snapshots.identity.rules import builtin

    found = (f for rule in builtin().rules for f in (*rule.drop, *rule.blank) if f.place == "query")
    return tuple((field.name, field.value) for field in found)


@lru_cache(maxsize=1024)
def plain_headers(headers: Headers) -> bool:
    """Whether the fields of a request show no choice, client, login or script that asks for a part of a page, and none
    that an application made up.
    """
    cookies = False
    for name, value in headers:
        low = name.lower()
        if low == "cookie":
            cookies = True
        elif low in FIELDS or low.startswith(_OPERATIONS) or (low == "authorization" and value.strip()):
            return False
    if own_of(headers):
        return False
    if not cookies:
        return True
    from stillweb.snapshots.states.slots import choices_of

    return not choices_of(headers) and not clients_of(headers)


@lru_cache(maxsize=1024)
def clients_of(headers: Headers) -> list[str]:
    """The cookies of a request by which a server knows its client: their values, sorted."""
    from stillweb.snapshots.identity.irrelevant import irrelevant_cookie
    from stillweb.snapshots.states.slots import cookies_of, is_session

    return sorted({v for n, v in cookies_of(headers) if is_session(n, v) and not irrelevant_cookie(n)})
