"""Whether two answers say the same: compared without what is new at every visit and means nothing.

Only used as evidence (did a change matter? may a rule join these?), never to serve one for the other's bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.secrets.redact import TEXTUAL

LIMIT = 1 << 21  # bytes of a body that are compared; beyond that the digest decides
OFTEN = 1 << 15  # bytes of a body whose comparable form is remembered

# Strict on purpose: taking "SalesReport2012Q3" for a random value would call two answers the same that are not.
_DRAWN = re.compile(
    r"stillweb-secret-[0-9a-f]{24}(?:k[0-9a-f]{11})?"
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|(?<![0-9A-Za-z])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{24,128}(?![0-9A-Za-z])"
    r"|(?<![A-Za-z0-9_\-+/=])[A-Za-z0-9_\-+/=]{22,512}(?![A-Za-z0-9_\-+/=])"
)
_HINT = r"(?:csrf|xsrf|nonce|authenticity[-_]?token|requestverificationtoken|__eventvalidation|__viewstate)"
_TOKEN_FIELDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        _HINT + r"""[^<>]{0,80}?\s(?:value|content)=["']([^"'<>]{4,})["']""",
        r"""(?:value|content)=["']([^"'<>]{4,})["'][^<>]{0,80}?name=["'][^"'<>]{0,40}?""" + _HINT,
        _HINT + r"""[\w-]{0,20}["']?\s*[:=]\s*["']([^"'<>]{4,})["']""",
    )
)


_STATIC = ("image/", "video/", "audio/", "font/", "text/css", "text/javascript", "application/javascript")
_STATIC_ALL = frozenset(
    {"application/x-javascript", "application/wasm", "application/font-woff", "application/pdf"}
)
FILE_STATUSES = (200, 206, 304)  # of answers that say what a file is


def static_mime(mime: str) -> bool:
    """Whether a media type is that of a file that pages are made with, not of a page or of data."""
    return mime.startswith(_STATIC) or mime in _STATIC_ALL


def static(method: str, mime: str, status: int) -> bool:
    """Whether an answer is a file that stays as it is, if nothing else was ever answered to its request."""
    return method in ("GET", "HEAD") and static_mime(mime) and status in FILE_STATUSES


def by_head(capture: Capture) -> bool:
    """Whether what an answer says is in its head: where a redirect leads, of which bytes a HEAD or 304 speaks."""
    return 300 <= capture.status < 400 or capture.method == "HEAD"


def spoken_of(capture: Capture, response: Response) -> str:
    """The bytes that an answer speaks of without sending them (HEAD, 304): their tag or date, and length."""
    if capture.method != "HEAD" and capture.status != 304:
        return ""
    tag = response.header("etag")
    if tag is None and (date := response.header("last-modified")) != response.header("date"):
        tag = date  # if both are the same, it was made as it was asked for, which says nothing
    length = response.header("content-length") if capture.status != 304 else None
    return f"{(tag or '').strip().removeprefix('W/')} {length or ''}"


def said_by(capture: Capture, response: Response, issued: Iterable[str] = ()) -> str:
    """As `said`, of the answer of a capture, which may be one without a body."""
    told = said(response, issued)
    of = spoken_of(capture, response)
    return f"{told} {of}" if of else told


def said(response: Response, issued: Iterable[str] = ()) -> str:
    """A hex digest of what an answer says; `issued` are values of the session to be left out."""
    media = (response.header("content-type") or "").partition(";")[0].strip().lower()
    location = _plain(response.header("location") or "", issued)
    body: bytes = response.body
    if body and len(body) <= LIMIT and (not media or TEXTUAL.search(media)):
        encoding = response.header("content-encoding")
        if len(body) <= OFTEN and not any(issued):
            body = _compared_often(body, encoding)
        else:
            body = _compared(body, encoding, issued)
    if 300 <= response.status < 400 and location:
        body = b""  # nobody reads the page of a redirect
    head = f"{response.status}\n{location}\n".encode("utf-8", "surrogateescape")
    return hashlib.sha256(head + body).hexdigest()


def _compared(body: bytes, encoding: str | None, issued: Iterable[str] = ()) -> bytes:
    """What of a text is compared."""
    try:
        text = decode(body, encoding, limit=LIMIT).decode("utf-8", "surrogateescape")
    except EncodingProblem:
        return body  # not what its header says: as it is
    return _plain(text, issued).encode("utf-8", "surrogateescape")


_compared_often = lru_cache(maxsize=256)(_compared)  # sites answer many requests with the same page


def _plain(text: str, issued: Iterable[str]) -> str:
    for value in issued:
        if value in text:
            text = text.replace(value, "~")
    if _hinted(text):
        for pattern in _TOKEN_FIELDS:
            text = pattern.sub(_field_blanked, text)
    return _drawn_blanked(text)


def _hinted(text: str) -> bool:
    """Whether a text may have a field of a token's name; looking for words is quicker than for a pattern."""
    low = text.lower()
    return any(word in low for word in _HINT_WORDS) or (
        not text.isascii() and any(letter in text for letter in _ODD_CASES) and bool(_HINTED.search(text))
    )


def _drawn_blanked(text: str) -> str:
    """`_DRAWN.sub(_drawn, text)`, tried only where a run of its characters is long enough: quicker by far."""
    flat = text.encode("latin-1", "replace").translate(_IN_RUN)  # a byte a character
    at = flat.find(_SHORTEST_RUN)
    if at < 0:
        return text
    parts: list[str] = []
    done = 0
    while at >= 0:
        end = flat.find(b" ", at)
        end = len(text) if end < 0 else end
        for match in _DRAWN.finditer(text, at, end + 1):  # it looks at the character after the run, too
            parts += text[done : match.start()], _drawn(match)
            done = match.end()
        at = flat.find(_SHORTEST_RUN, end)
    return "".join((*parts, text[done:]))


def _field_blanked(match: re.Match[str]) -> str:
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:start] + "~" + match[0][end:]


def _drawn(match: re.Match[str]) -> str:
    run = match[0]
    if run.startswith("stillweb-secret-") or _HEX.fullmatch(run):
        return "~"
    kinds = [0 if c.islower() else 1 if c.isupper() else 2 if c.isdigit() else 3 for c in run]
    changes = sum(a != b for a, b in pairwise(kinds))
    return "~" if changes * 2 >= len(run) and len(set(kinds) - {3}) == 3 else run


_HINTED = re.compile(_HINT, re.IGNORECASE)
_HINT_WORDS = (
    "csrf",
    "xsrf",
    "nonce",
    "authenticity",
    "requestverificationtoken",
    "__eventvalidation",
    "__viewstate",
)
_ODD_CASES = "\u017f\u0130\u0131\u212a"  # letters that a pattern takes for s, i and k whatever their case
_IN_RUN = bytes(
    0x61 if chr(c).isascii() and (chr(c).isalnum() or chr(c) in "_-+/=") else 0x20 for c in range(256)
)
_SHORTEST_RUN = b"a" * 22  # of all alternatives of _DRAWN
_HEX = re.compile(r"[0-9a-fA-F-]+")


def _as_it_is(capture: Capture) -> bool:
    """Whether a body is compared as it is (that of a picture is) and we made its digest, which says as much."""
    return (
        bool(capture.session and capture.digest)
        and not by_head(capture)
        and "/" in capture.mime
        and TEXTUAL.search(capture.mime) is None
    )


def _untold(capture: Capture) -> bool:
    """Whether a digest does not tell what an answer says."""
    return by_head(capture) or not capture.digest


class Answers:
    """Classes of captures that say the same; reads a body only where digests differ, and of equal ones only one."""

    def __init__(self, read_response: Callable[[Capture], Response]) -> None:
        self._read = read_response
        self._said: dict[Any, str] = {}

    def classes(
        self, captures: Iterable[Capture], issued: Callable[[Capture], Iterable[str]] | None = None
    ) -> list[str]:
        """A label for each capture; equal labels for answers that say the same."""
        captures = list(captures)
        if len({(c.digest, c.status) for c in captures}) <= 1 and not any(map(_untold, captures)):
            return [""] * len(captures)
        if all(map(_as_it_is, captures)):
            return [f"{c.status} {c.digest}" for c in captures]
        return [self._label(c, tuple(issued(c)) if issued else ()) for c in captures]

    def _label(self, capture: Capture, issued: tuple[str, ...]) -> str:
        key = (capture.place if _untold(capture) else (capture.digest, capture.status), issued)
        label = self._said.get(key)
        if label is None:
            label = self._said[key] = said_by(capture, self._read(capture), issued)
        return label

    def same(self, one: Capture, other: Capture) -> bool:
        """Whether two captures say the same."""
        first, second = self.classes((one, other))
        return first == second
