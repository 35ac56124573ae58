"""Equality of answers: status, body and fields, without times and values that are drawn for each answer."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import pairwise

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.http.spans import recorded_range_of
from stillweb.snapshots.http.static import ASSET, static_mime
from stillweb.snapshots.identity.keys import mix
from stillweb.snapshots.secrets.redact import TEXTUAL

# Fields that tell when an answer was made, or how it was carried.
_UNCOUNTED = """
    date age expires last-modified etag content-length transfer-encoding connection keep-alive server via alt-svc
    x-request-id x-runtime x-trace-id cf-ray set-cookie vary cache-control strict-transport-security server-timing
    report-to nel x-served-by x-cache x-cache-hits x-timer content-encoding accept-ranges location
"""
UNCOUNTED = frozenset(_UNCOUNTED.split())


def equal(one: Response, other: Response) -> bool:
    """Return True if two answers are the same to a client."""
    return label_of(one) == label_of(other)


def label_of(response: Response) -> int:
    """Return a number for what an answer says; equal answers have equal numbers."""
    fields = {(n.lower(), _plain(v, ())) for n, v in response.headers if n.lower() not in UNCOUNTED}
    return mix(answer_digest(response), sorted(fields))


def _label(read: Callable[[Capture], Response], capture: Capture) -> int:
    try:
        response = read(capture)
        if len(response.body) == LIMIT + 1 and capture.digest:  # the start of a body too large for memory
            return mix(label_of(replace(response, body=b"")), capture.digest)
        return label_of(response)
    except (DamagedInput, TooLarge):
        return mix(capture.status, capture.digest, capture.place)


class Equality:
    """Labels of captures. A body is read only where a request was answered with several, and each once. Parts of one file are alike.

    `names` holds by place what rules leave of a capture's key, where that is less: captures of one name are of one request.
    """

    def __init__(
        self,
        read: Callable[[Capture], Response],
        head: Callable[[Capture], Response],
        captures: Iterable[Capture],
        names: Mapping[tuple[str, int], str],
    ) -> None:
        self._read, self._head, self._names = read, head, names
        self._labels: dict[tuple[str, int], int] = {}
        self._files: dict[tuple[str, int], int] = {}
        several: dict[str, list[Capture]] = defaultdict(list)
        for capture in captures:
            several[names.get(capture.place, capture.key) if names else capture.key].append(capture)
        self.varied: set[str] = set()  # keys of several answers
        for name, own in several.items():
            if len(own) == 1:
                continue
            told: set[object] = {(c.status, c.digest) for c in own}
            if len(told) > 1 or any(by_head(c) or not c.digest for c in own):
                told = set(map(self._several, own))
            elif not static_mime(own[0].mime):
                told = {_label(head, c) for c in own}  # bodies are equal, fields perhaps not
            if len(told) > 1:
                self.varied.add(name)

    def label(self, capture: Capture) -> int:
        """Return a number for what a capture says, to be compared with those of the same request."""
        name = self._names.get(capture.place, capture.key)
        return self._several(capture) if name in self.varied else mix("only", name)

    def _several(self, capture: Capture) -> int:
        if capture.status == 206 and (same := self._representation(capture)) is not None:
            return mix("part", same[0])
        if capture.status == 200 and capture.digest and ASSET.search(capture.mime):
            found = self._files.get(capture.place)
            if found is None:
                found = self._files[capture.place] = mix("file", self._unpacked(capture), capture.mime)
            return found
        return self.read_label(capture)

    def _representation(self, capture: Capture) -> tuple[str, int] | None:
        try:
            return recorded_range_of(self._head(capture).header).representation
        except (DamagedInput, TooLarge):
            return None

    def _unpacked(self, capture: Capture) -> str:
        """Return a digest of a file without its packing: many servers pack it anew each time, and write the moment into it."""
        try:
            encoding = self._head(capture).header("content-encoding")
            body = decode(self._read(capture).body, encoding, limit=LIMIT) if encoding else b""
        except (DamagedInput, TooLarge, EncodingProblem):
            body = b""
        return hashlib.sha256(body).hexdigest() if 0 < len(body) < LIMIT else capture.digest

    def read_label(self, capture: Capture) -> int:
        """Return the number for what a capture says, as `label_of` does for any answer."""
        found = self._labels.get(capture.place)
        if found is None:
            found = _label(self._read, capture)
            self._labels[capture.place] = found
        return found


# An answer's content, without meaningless values that are new at every visit

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
_HIDDEN = r"(?:form_?key|form_build_id|form_token|sesskey|sectok|_?token)"  # names of hidden fields of forms
_TOKEN_FIELDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        _HINT + r"""[^<>]{0,80}?\s(?:value|content)=["']([^"'<>]{4,})["']""",
        r"""(?:value|content)=["']([^"'<>]{4,})["'][^<>]{0,80}?name=["'][^"'<>]{0,40}?""" + _HINT,
        _HINT + r"""[\w-]{0,20}["']?\s*[:=]\s*["']([^"'<>]{4,})["']""",
        "'nonce-([^'<>]{1,512})'",  # of Content-Security-Policy
        r"""<input(?=[^<>]{0,300}?\stype=["']?hidden\b)(?=[^<>]{0,300}?\sname=["']?"""
        + _HIDDEN
        + r"""["'\s/>])[^<>]{0,300}?\svalue=["']([^"'<>]{8,})["']""",
    )
)


# How long an answer took to make: "took 0.0001 sec", "generated in 12 ms", "(0.003 s)", "took":12. Whole seconds may be anything else.
_TOOK = r"(?:\d{1,6}\.\d{1,9}|0|\d{1,6}(?=\s?m))\s?(?:m?s|m?secs?|(?:milli)?seconds?)\b"
_MADE = r"(?:generat|render|execut|process|creat|load|serv|complet|finish)ed\sin"
_SPAN = r"(?:\w{0,16}(?:query|execution|processing|response|request|render|search|cpu|wall)_?time\w{0,12}|took|qtime)"
_TOOK_FIELDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:took|taken|elapsed|usage|{_MADE}):?\s(?:about\s)?({_TOOK})",
        r"\((0\.\d{2,9}\s?s(?:ec)?(?:onds)?)\)",
        rf"""["']{_SPAN}["']\s?:\s?["']?(\d{{1,9}}(?:\.\d{{1,9}})?)(?=[\s,}}\]"'])""",
    )
)
_TOOK_WORDS = "ook", "aken", "lapsed", "sage", "ed in", "(0.", "ime"


def by_head(capture: Capture) -> bool:
    """Return True if the head of an answer says it all: of a redirect, a 304, or to HEAD."""
    return 300 <= capture.status < 400 or capture.method == "HEAD"


def answer_digest(response: Response, issued: Iterable[str] = ()) -> str:
    """Return a hex digest of an answer's content, without the values in `issued`."""
    media = (response.header("content-type") or "").partition(";")[0].strip().lower()
    location = _plain(response.header("location") or "", issued)
    body: bytes = response.body
    if body and len(body) <= LIMIT and (not media or TEXTUAL.search(media)):
        encoding = response.header("content-encoding")
        if len(body) <= OFTEN and not any(issued):
            body = _compared_often(body, encoding)
        else:
            body = _compared(body, encoding, issued)
        body = _without_now(body, response.header("date"))
    if 300 <= response.status < 400 and location:
        body = b""  # nobody reads the page of a redirect
    head = f"{response.status}\n{location}\n".encode("utf-8", "surrogateescape")
    return hashlib.sha256(head + body).hexdigest()


def _compared(body: bytes, encoding: str | None, issued: Iterable[str] = ()) -> bytes:
    """Return the text of a body without the values that are drawn for each answer."""
    try:
        text = decode(body, encoding, limit=LIMIT).decode("utf-8", "surrogateescape")
    except EncodingProblem:
        return body  # not what its header says: as it is
    return _plain(text, issued).encode("utf-8", "surrogateescape")


_MOMENT = re.compile(
    # seconds, milliseconds or microseconds since 1970
    rb"(?<![\w.])1[5-9]\d{8}(?:\d{3}|\d{6})?(?:\.\d{1,9})?(?![\w.])"
    rb"|(?<!\d)20\d\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-6]\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|(?<![\w.])20\d\d[01]\d[0-3]\dT?[0-2]\d[0-5]\d[0-6]\d(?![\w.])"
)
NOW = 3.0  # seconds between an answer's Date and a time in it that says when it was made


def _without_now(body: bytes, date: str | None) -> bytes:
    """Return a body without the moments at which it was made, as its Date field tells that."""
    if date is None or _MOMENT.search(body) is None:
        return body
    try:
        named = parsedate_to_datetime(date)
    except ValueError:
        return body
    made = (named if named.tzinfo else named.replace(tzinfo=UTC)).timestamp()

    def blanked(match: re.Match[bytes]) -> bytes:
        text = match[0].decode()
        if text.startswith("1"):
            seconds: float | None = float(text) / 10 ** (len(text.partition(".")[0]) - 10)
        else:
            seconds = seconds_of(text)
        return b"~" if seconds is not None and abs(seconds - made) <= NOW else match[0]

    return _MOMENT.sub(blanked, body)


_compared_often = lru_cache(maxsize=256)(_compared)  # sites answer many requests with the same page


def _plain(text: str, issued: Iterable[str]) -> str:
    for value in issued:
        if value in text:
            text = text.replace(value, "~")
    if _hinted(text):
        for pattern in _TOKEN_FIELDS:
            text = pattern.sub(_field_blanked, text)
    if any(word in text for word in _TOOK_WORDS):
        for pattern in _TOOK_FIELDS:
            text = pattern.sub(_field_blanked, text)
    return _drawn_blanked(text)


def _hinted(text: str) -> bool:
    """Return True if a text may have a field of a token's name; words are found quicker than a pattern."""
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


_HINTED = re.compile(f"{_HINT}|{_HIDDEN}", re.IGNORECASE)
_HINT_WORDS = (
    "csrf", "xsrf", "nonce", "authenticity", "requestverificationtoken", "__eventvalidation", "__viewstate",
    "form_key", "formkey", "form_build_id", "sesskey", "sectok", "token"
)  # fmt: skip
_ODD_CASES = "\u017f\u0130\u0131\u212a"  # letters that a pattern takes for s, i and k whatever their case
_IN_RUN = bytes(
    0x61 if chr(c).isascii() and (chr(c).isalnum() or chr(c) in "_-+/=") else 0x20 for c in range(256)
)
_SHORTEST_RUN = b"a" * 22  # of all alternatives of _DRAWN
_HEX = re.compile(r"[0-9a-fA-F-]+")
