"""The typed body of a request: what it means, without losing anything of it.

A body is read as JSON, as a form or as multipart only when it can be read strictly; whatever is odd in it
(a duplicate member, a number no double can hold, a form with raw quotes, a part without its end) makes it
plain bytes, so that two bodies are never called the same because a parser was lenient.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_to_bytes

import rfc8785

EMPTY, JSON, FORM, MULTIPART, BYTES = "empty", "json", "form", "multipart", "bytes"

# Media types that say nothing about the bytes; all other types take part in the key of a plain body.
UNTYPED = frozenset({"", "text/plain", "application/octet-stream", "binary/octet-stream"})

MAX_DEPTH = 64  # of JSON; deeper is bytes, so that no walk over it can run out of stack

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NOT_A_FORM = re.compile(rb'[\x00-\x20\x7f"<>{}\\^`]')
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pair:
    """A decoded name and value of a form. `equals` keeps `a` apart from `a=`; `raw` marks a bad escape."""

    name: bytes
    value: bytes
    equals: bool = True
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a multipart body: its header fields (lower-case names, sorted) and its content."""

    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes

    @property
    def name(self) -> str:
        """The form field it fills, or "" where it says none."""
        return self._told(rb'[;\s]name="([^"]*)"') or ""

    @property
    def filename(self) -> str | None:
        """The name of the file that it holds; None where it is a plain field."""
        return self._told(rb'[;\s]filename="([^"]*)"')

    def _told(self, pattern: bytes) -> str | None:
        for name, value in self.headers:
            if name == b"content-disposition":
                found = re.search(pattern, value)
                return found[1].decode("utf-8", "replace") if found else None
        return None


@dataclass(frozen=True, slots=True)
class Body:
    """A body by kind. `value` is None, a JSON value, a tuple of `Pair`, a tuple of `Part`, or bytes.

    `label` is what of the content type changes the meaning: for multipart its subtype, for bytes the media
    type, content coding and a charset that is not UTF-8, for a form such a charset, else "".
    """

    kind: str
    value: Any = None
    label: str = ""
    canonical: bytes | None = None  # where reading it has already given its canonical bytes


def netstring(*items: bytes) -> bytes:
    """Byte strings joined so that no two different lists give the same bytes."""
    return b"".join([b"%d:%b," % (len(item), item) for item in items])


def typed_body(body: bytes, content_type: str | None, content_encoding: str | None = None) -> Body:
    """The body by its kind. Never raises: what can't be read strictly is bytes."""
    if not body:
        return Body(EMPTY)
    media, _, parameters = (content_type or "").partition(";")
    media = media.strip().lower()
    coding = (content_encoding or "").strip().lower()
    if coding in ("", "identity"):
        coding = ""
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


def charset_of(parameters: str) -> str:
    """The charset in the parameters of a content type, lower case; "" for UTF-8, its part ASCII, and none."""
    if "charset" not in parameters.lower():
        return ""
    charset = parameters.lower().replace('"', "").partition("charset=")[2].partition(";")[0].strip()
    return "" if charset in _UTF8 else charset


_UTF8 = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})


def canonical_body(body: Body) -> bytes:
    """The canonical bytes of a body; equal exactly for bodies that mean the same."""
    if body.kind == EMPTY:
        return b""
    if body.canonical is not None:
        return body.canonical
    if body.kind == JSON:
        return canonical_json(body.value)
    if body.kind == FORM:
        return netstring(*sorted(_pair_bytes(p) for p in body.value))
    if body.kind == MULTIPART:
        parts: Iterable[bytes] = (_part_bytes(p) for p in body.value)
        # Only form-data is a set of fields; in multipart/related and mixed the order means something.
        return netstring(*(sorted(parts) if body.label == "form-data" else parts))
    return bytes(body.value)


def canonical_json(value: Any) -> bytes:
    """RFC 8785. The standard encoder writes the same where no float and no odd character is present."""
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return rfc8785.dumps(value)
    # "." and "e" next to digits, \u escapes and \x7f are where the two encoders may differ.
    if _SAME_IN_BOTH.search(text) is None:
        return text.encode()
    return rfc8785.dumps(value)


_SAME_IN_BOTH = re.compile(r"\\u|\x7f|[0-9][.eE]")


def _pair_bytes(pair: Pair) -> bytes:
    kind = b"=" if pair.equals else b"-"
    return netstring(kind + (b"r" if pair.raw else b""), pair.name, pair.value)


def _part_bytes(part: Part) -> bytes:
    return netstring(netstring(*(item for header in part.headers for item in header)), part.content)


class _OddJSONError(ValueError):
    """Valid for a lenient reader, but two readers may understand it differently."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _OddJSONError("duplicate member")
    return value


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")) or Decimal(repr(value)) != Decimal(text):
        raise _OddJSONError("a number that a double can't hold")
    return value


def _int(text: str) -> int:
    if len(text) > 17 or abs(value := int(text)) > 2**53 - 1 or text == "-0":
        raise _OddJSONError("a number that a double can't hold")
    return value


def _constant(text: str) -> Any:
    raise _OddJSONError(text)


_READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant, strict=True
)


def _json(body: bytes, parameters: str) -> Body | None:
    if charset_of(parameters):
        return None
    try:
        value = _READER.decode(body.decode("utf-8"))
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            return None
        return Body(JSON, value, canonical=canonical_json(value))  # a lone surrogate can't be written
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
    """The pairs of an urlencoded string, each decoded once; a bad escape keeps its pair as it is."""
    pairs = []
    for item in text.split(b"&"):
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
    # JSON or XML sent under curl's default type is not a form: decoding "+" in it would lose something.
    if _NOT_A_FORM.search(body):
        return None
    if not body.isascii():  # as UTF-8 it decodes to the bytes that its escapes stand for (WHATWG URL, 5.1)
        try:
            body.decode("ascii" if charset else "utf-8")
        except UnicodeDecodeError:
            return None
    return Body(FORM, form_pairs(body), charset)


def _multipart(body: bytes, subtype: str, parameters: str) -> Body | None:
    found = _BOUNDARY.search(parameters)
    if not found:
        return None
    try:
        delimiter = b"--" + (found[1] or found[2]).encode("ascii")
    except UnicodeEncodeError:
        return None
    if body in (delimiter + b"--", delimiter + b"--\r\n"):
        return Body(MULTIPART, (), subtype)  # a form without fields, as browsers send it
    if not body.startswith(delimiter + b"\r\n"):
        return None
    sections = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if sections[0] or sections[-1] not in (b"--", b"--\r\n"):
        return None
    parts = []
    for section in sections[1:-1]:
        if not section.startswith(b"\r\n"):
            return None  # a longer boundary, or padding: not what a browser writes
        head, gap, content = section.partition(b"\r\n\r\n")
        headers = []
        for line in head[2:].split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon or not name.strip() or name != name.strip():
                return None
            headers.append((name.lower(), value.strip()))
        if not gap:
            return None
        parts.append(Part(tuple(sorted(headers)), content))
    return Body(MULTIPART, tuple(parts), subtype)
