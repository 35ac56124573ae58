"""The typed body of a request: its meaning, without any loss.

A body is read as JSON, as a form or as multipart only if strict parsing succeeds. Anything odd (a duplicate
member, a number that no double can hold, a form with raw quotes, a part without an end) makes it plain bytes,
so that a lenient parser never makes two different bodies equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_to_bytes

import rfc8785

from stillweb.snapshots.http.encodings import EncodingProblem, codings, decode, request_coding
from stillweb.snapshots.yielding import RUN, as_dict, cut_at, in_order, matches, read_json, write_json

EMPTY, JSON, FORM, MULTIPART, BYTES = "empty", "json", "form", "multipart", "bytes"

# Media types that say nothing about the bytes. All other types are part of the key of a plain body.
UNTYPED = frozenset({"", "text/plain", "application/octet-stream", "binary/octet-stream"})

MAX_NESTED = 4  # multipart bodies within each other
MAX_DEPTH = 64  # of JSON; deeper values are bytes, so that no recursion over them exhausts the stack
MAX_VALUES = 1 << 19  # about those of JSON; a body of more is bytes, as each takes up to 250 bytes of memory
MAX_FIELDS = 1 << 14  # of a form or multipart; a body of more is bytes. PHP and Django take 1,000, Rack 4,096
MAX_LINES = 256  # of the head of a part

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NOT_A_FORM = re.compile(rb'[\x00-\x20\x7f"<>{}\\^`]')
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pair:
    """A decoded name and value of a form. `equals` tells `a=` from `a`; `raw` marks a bad escape."""

    name: bytes
    value: bytes
    equals: bool = True
    raw: bool = False


@dataclass(frozen=True, slots=True)
class MultipartField:
    """A part of a multipart body: its header fields (lower-case names, sorted) and its content."""

    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes

    @property
    def name(self) -> str:
        """The name of the part's form field, or ""."""
        return self._told(rb'[;\s]name="([^"]*)"') or ""

    @property
    def filename(self) -> str | None:
        """The name of the part's file, or None for a plain field."""
        return self._told(rb'[;\s]filename="([^"]*)"')

    def _told(self, pattern: bytes) -> str | None:
        for name, value in self.headers:
            if name == b"content-disposition":
                found = re.search(pattern, value)
                return found[1].decode("utf-8", "replace") if found else None
        return None


@dataclass(frozen=True, slots=True)
class Body:
    """A body by kind. `value` is None, a JSON value, a tuple of `Pair`, a tuple of `MultipartField`, or bytes.

    `label` is the part of the content type that changes the meaning. For multipart: its subtype. For bytes:
    the media type, the content coding and a charset other than UTF-8. For a form: such a charset. Else "".
    """

    kind: str
    value: Any = None
    label: str = ""
    canonical: bytes | None = None  # set if parsing has already produced the canonical bytes
    size: int = field(default=0, compare=False)  # about the bytes of JSON as text

    def with_value(self, value: Any) -> Body:
        """Return a body of the same kind with another value."""
        return replace(self, value=value, canonical=None)


def netstring(*items: bytes) -> bytes:
    """Join byte strings so that no two different lists give the same bytes."""
    if len(items) > RUN:
        return b"".join([netstring(*items[at : at + RUN]) for at in range(0, len(items), RUN)])
    return b"".join([b"%d:%b," % (len(item), item) for item in items])


def typed_body(body: bytes, content_type: str | None, content_encoding: str | None = None) -> Body:
    """Parse a body by its content type. Never raises: anything that strict parsing rejects is bytes.

    A packed body is unpacked first. One that can't be decoded is bytes with its declared coding as part of the label.
    """
    if not body:
        return Body(EMPTY)
    media, _, parameters = (content_type or "").partition(";")
    media = media.strip().lower()
    coding = ", ".join(codings(content_encoding))
    if (plain := unpack_body(body, coding)) is not None:
        body, coding = plain, ""
        if not body:
            return Body(EMPTY)
    if not coding:
        found: Body | None = None
        if media == "application/x-www-form-urlencoded":
            found = _form(body, charset_of(parameters))
        elif media in ("application/json", "text/json", "application/x-json") or media.endswith("+json"):
            found = _json(body, parameters)
        elif media.startswith("multipart/"):
            found = _multipart(body, media[10:], parameters)
        if found is not None:
            return found
    label = "" if media in UNTYPED else media
    charset = charset_of(parameters)
    if charset:
        label += f";charset={charset}"
    return Body(BYTES, body, f"{label};{coding}" if coding else label)


def unpack_body(body: bytes, content_encoding: str | None) -> bytes | None:
    """Return a body without its content encodings, or None if it has none or can't be decoded."""
    coding = request_coding(body, content_encoding)
    if not codings(coding):
        return None
    try:
        return decode(body, coding)
    except EncodingProblem:
        return None


def charset_of(parameters: str) -> str:
    """Return the charset parameter of a content type in lower case, or "" for UTF-8, ASCII or none."""
    if "charset" not in parameters.lower():
        return ""
    charset = parameters.lower().replace('"', "").partition("charset=")[2].partition(";")[0].strip()
    return "" if charset in _UTF8 else charset


_UTF8 = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})


def canonical_body(body: Body) -> bytes:
    """Return the canonical bytes of a body, which are equal exactly for bodies with the same meaning."""
    if body.kind == EMPTY:
        return b""
    if body.canonical is not None:
        return body.canonical
    if body.kind == JSON:
        return canonical_json(body.value, body.size)
    if body.kind == FORM:
        return netstring(*in_order(_pair_bytes(p) for p in body.value))
    if body.kind == MULTIPART:
        parts: Iterable[bytes] = (_part_bytes(p) for p in body.value)
        # Only form-data is a set of fields; in multipart/related and mixed, the order matters.
        return netstring(*(in_order(parts) if body.label == "form-data" else parts))
    return bytes(body.value)


def canonical_json(value: Any, size: int = 0) -> bytes:
    """Serialize a value by RFC 8785. `size` says about how long the text will be, if that is known.

    Python's encoder is faster, and gives the same bytes for values without floats and odd characters.
    """
    try:
        text = write_json(value, size, _WRITER)
    except ValueError:
        return rfc8785.dumps(value)
    # The two encoders may differ in "." and "e" next to digits, \u escapes and \x7f.
    if next(matches(_SAME_IN_BOTH, text, 2), None) is None:
        return text.encode()
    return rfc8785.dumps(value)


_FRACTION = re.compile(rb"[0-9][.eE]")


def spells_numbers_alike(one: bytes, other: bytes) -> bool:
    """Return False if two JSON texts of one meaning, but for strings, differ in which whole numbers are written as fractions, as 1 and 1.0 are.

    JavaScript reads both alike; to Python, Java and Go they are of two types.
    """
    return _whole_fractions(one) == _whole_fractions(other)


def _whole_fractions(text: bytes) -> set[tuple[str | int, ...]]:
    found = set[tuple[str | int, ...]]()
    left: list[tuple[tuple[str | int, ...], Any]] = []
    if _FRACTION.search(text):
        left.append(((), read_json(_READER, text.decode())))
    while left:
        place, value = left.pop()
        if isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            left += [((*place, name), item) for name, item in items]
        elif isinstance(value, float) and value.is_integer():
            found.add(place)
    return found


_WRITER = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
_SAME_IN_BOTH = re.compile(r"\\u|\x7f|[0-9][.eE]")


def _pair_bytes(pair: Pair) -> bytes:
    kind = b"=" if pair.equals else b"-"
    return netstring(kind + (b"r" if pair.raw else b""), pair.name, pair.value)


def _part_bytes(part: MultipartField) -> bytes:
    return netstring(netstring(*(item for header in part.headers for item in header)), part.content)


class _OddJSONError(ValueError):
    """JSON that a lenient parser accepts, but that two parsers may understand differently."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object. Raise ValueError if a name stands twice: parsers differ in which one they take."""
    count = len(pairs)
    value = as_dict(pairs)
    if len(value) != count:
        raise _OddJSONError("duplicate member")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not text.isascii() or value in (float("inf"), float("-inf")) or Decimal(repr(value)) != Decimal(text):
        raise _OddJSONError("a number that a double can't hold")
    return value


def _int(text: str) -> int:
    if len(text) > 17 or not text.isascii() or abs(value := int(text)) > 2**53 - 1 or text == "-0":
        raise _OddJSONError("a number that a double can't hold")
    return value


def _constant(text: str) -> Any:
    raise _OddJSONError(text)


_READER = json.JSONDecoder(
    object_pairs_hook=unique_members,
    parse_float=_float,
    parse_int=_int,
    parse_constant=_constant,
    strict=True,
)


def _json(body: bytes, parameters: str) -> Body | None:
    if charset_of(parameters) or sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        return None
    try:
        value = read_json(_READER, body.decode("utf-8"))
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            return None
        canonical = canonical_json(value, len(body))  # raises ValueError for a lone surrogate
        return Body(JSON, value, canonical=canonical, size=len(body))
    except (ValueError, RecursionError, ArithmeticError):
        return None


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def form_pairs(text: bytes) -> tuple[Pair, ...]:
    """Parse an urlencoded string, decoding each pair once. A pair with a bad escape stays as it is."""
    pairs = []
    for item in (item for piece in cut_at(b"&", text) for item in piece.split(b"&")):
        name, equals, value = item.partition(b"=")
        if b"%" in item and _BAD_ESCAPE.search(item):
            pairs.append(Pair(name, value, bool(equals), raw=True))
            continue
        if b"+" in item:
            name, value = name.replace(b"+", b" "), value.replace(b"+", b" ")
        if b"%" in item:
            name, value = unquote_to_bytes(name), unquote_to_bytes(value)
        pairs.append(Pair(name, value, bool(equals)))
    return tuple(pairs)


def _form(body: bytes, charset: str) -> Body | None:
    # JSON or XML sent with curl's default type is not a form: decoding its "+" would lose information.
    if body.count(b"&") > MAX_FIELDS or any(matches(_NOT_A_FORM, body, 1)):
        return None
    if not body.isascii():  # UTF-8 decodes to the bytes that escapes stand for (WHATWG URL, 5.1)
        try:
            body.decode("ascii" if charset else "utf-8")
        except UnicodeDecodeError:
            return None
    return Body(FORM, form_pairs(body), charset)


def _without_inner_boundary(
    headers: list[tuple[bytes, bytes]], content: bytes, depth: int
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return a part that is multipart itself (an OData changeset) in canonical form; any other as it is."""
    for at, (name, value) in enumerate(headers):
        media, _, parameters = value.decode("latin-1").partition(";")
        if name == b"content-type" and media.strip().lower().startswith("multipart/"):
            inner = _multipart(content, media.strip().lower()[10:], parameters, depth)
            if inner is not None:
                boundary = _BOUNDARY.sub("boundary=", value.decode("latin-1")).encode("latin-1")
                return [*headers[:at], (name, boundary), *headers[at + 1 :]], canonical_body(inner)
    return headers, content


def _multipart(body: bytes, subtype: str, parameters: str, depth: int = 0) -> Body | None:
    found = _BOUNDARY.search(parameters)
    if not found:
        return None
    try:
        delimiter = b"--" + (found[1] or found[2]).encode("ascii")
    except UnicodeEncodeError:
        return None
    body = body.removeprefix(b"\r\n")  # an empty preamble, as Axis and WCF write it (RFC 2046, 5.1.1)
    if body in (delimiter + b"--", delimiter + b"--\r\n"):
        return Body(MULTIPART, (), subtype)  # a form without fields, as browsers send it
    if not body.startswith(delimiter + b"\r\n") or body.count(delimiter) > MAX_FIELDS:
        return None
    sections = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if sections[0] or sections[-1] not in (b"--", b"--\r\n"):
        return None
    parts = []
    for section in sections[1:-1]:
        if not section.startswith(b"\r\n"):
            return None  # a longer boundary, or padding: no browser writes that
        head, gap, content = section.partition(b"\r\n\r\n")
        if head.count(b"\r\n") > MAX_LINES:
            return None
        headers = []
        for line in head[2:].split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon or not name.strip() or name != name.strip():
                return None
            headers.append((name.lower(), value.strip()))
        if not gap:
            return None
        if depth < MAX_NESTED:
            headers, content = _without_inner_boundary(headers, content, depth + 1)
        parts.append(MultipartField(tuple(sorted(headers)), content))
    return Body(MULTIPART, tuple(parts), subtype)
