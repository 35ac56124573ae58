"""Decoder for a page's bytes, with the character encoding that a browser would choose.

Order (WHATWG Encoding, and HTML 13.2.3.2): byte order mark, `Content-Type`, `<meta>` in the first 1024 bytes,
then UTF-8 if the bytes are valid UTF-8, else what Firefox's detector (chardetng) finds. Our own are the steps for damage:
non-ASCII bytes that are UTF-8 but for a few are read as UTF-8 whatever the label says, with a warning, and a few damaged
bytes don't change what is detected.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import webencodings

# Codecs for which browsers differ from the `webencodings` package (WHATWG Encoding, HTML 13.2.3.2).
_CODECS = {"gbk": "gb18030", "x-user-defined": "cp1252"}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEADER = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.I)
_META = re.compile(
    rb"<meta[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)|<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]+)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text with its encoding (a Python codec name), the source of that encoding, and warnings."""

    text: str
    encoding: str
    source: str  # "bom", "header", "meta", "utf-8", "detected" or "overruled"
    warnings: tuple[str, ...] = ()


def codec(label: str | None) -> str | None:
    """Return the Python codec of an encoding label of the web, or None."""
    found = webencodings.lookup(label) if label else None
    if found is None or found.name == "replacement":  # browsers refuse to decode it
        return None
    name = found.codec_info.name
    return codecs.lookup(_CODECS.get(name, name)).name


def header_charset(content_type: str | None) -> str | None:
    """Return the charset parameter of a Content-Type, as written."""
    match = _HEADER.search(content_type or "")
    return match[1] if match else None


def meta_charset(body: bytes) -> str | None:
    """Return the charset in a page's `<meta>` or XML declaration, as written."""
    match = _META.search(body[:1024])
    return (match[1] or match[2]).decode("ascii") if match else None


def decode(body: bytes, content_type: str | None) -> Decoded:
    """Decode a page's (content-decoded) bytes.

    Never fails: undecodable bytes become U+FFFD, with a warning.
    """
    warnings: list[str] = []
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _read(body[len(mark) :], name, "bom", warnings)
    label = header_charset(content_type)
    found = codec(label)
    if label and not found:
        warnings.append(f"unknown charset {label[:40]!r} in Content-Type")
    source = "header"
    if not found:
        meta = meta_charset(body)
        found, source = codec(meta), "meta"
        if meta and not found:
            warnings.append(f"unknown charset {meta[:40]!r} in <meta>")
        if found and found.startswith("utf-16"):
            found = "utf-8"  # as UTF-16, the ASCII label would not have been readable (HTML 13.2.3.3)
    if found is None:
        if _is_utf8(body) and not _ISO_2022_JP.search(body):
            return _read(body, "utf-8", "utf-8", warnings)
        found = _detected(body)
        warnings.append(f"no charset is named: read as {found}")
        return _read(body, found, "detected", warnings)
    if found not in ("utf-8", "gb18030") and not body.isascii() and _is_utf8(body):
        warnings.append(f"charset says {found}, the bytes are UTF-8")
        return _read(body, "utf-8", "overruled", warnings)
    return _read(body, found, source, warnings)


def _is_utf8(body: bytes) -> bool:
    """Return True if bytes are UTF-8 with few damaged characters: at most one in three beyond ASCII."""
    text = body.decode("utf-8", "replace")
    damaged = text.count("\ufffd") - body.count(b"\xef\xbf\xbd")
    return not damaged or _beyond_ascii(text) >= 3 * damaged


def _detected(body: bytes) -> str:
    """Return the codec that a browser would guess for a page that names none.

    The detector drops an encoding at the first byte that it doesn't have, so one damaged byte turns a page over. So
    it is asked again without the few bytes that such an encoding can't read: if it now finds that one, it is.
    """
    if _ISO_2022_JP.search(body):
        return "iso2022_jp"
    found = _guess(body)
    head = body[:_READ_AGAIN]
    sound = found in _OF_PAIRS and "\ufffd" not in _read_by(found, head)
    for name in _OF_PAIRS[:-1] if sound else (*_WITH_GAPS, *_OF_PAIRS):
        text = _read_by(name, head)
        damaged = text.count("\ufffd")
        few = 0 < damaged <= max(1, _beyond_ascii(text) // 16)
        if few and _guess(text.replace("\ufffd", "").encode(name, "ignore")) == name:
            return name
    return found


def _read_by(name: str, body: bytes) -> str:
    return body.decode(name, "replace").translate(_NEVER_WRITTEN)


_ISO_2022_JP = re.compile(rb"\x1b\$[@B]")  # all ASCII: the detector doesn't see it
# Encodings that don't have all pairs of bytes; the last has nearly all, and reads what the others wrote.
_OF_PAIRS = ("euc_jp", "gb18030", "big5hkscs", "cp949", "cp932")
# Encodings that don't have all bytes; those of ISO have none from 0x80 to 0x9F.
_WITH_GAPS = ("cp1253", "cp1255", "cp1257", "cp874", *(f"iso8859-{part}" for part in (2, 4, 5, 6, 7, 8)))
_READ_AGAIN = 1 << 18  # bytes of a page
# what Python's cp932 makes of them
_NEVER_WRITTEN = dict.fromkeys((*range(0x80, 0xA0), *range(0xF8F0, 0xF8F4)), "\ufffd")


def _guess(body: bytes) -> str:
    import chardetng_py  # late: frozen texts are also read where it is not installed

    label = chardetng_py.detect(body)
    return codec(label) or codecs.lookup(label).name


def _beyond_ascii(text: str) -> int:
    return sum(not c.isascii() for c in text)


def _read(body: bytes, name: str, source: str, warnings: list[str]) -> Decoded:
    text = body.decode(name, "replace")
    if "\ufffd" in text:
        bad = text.count("\ufffd")
        warnings.append(f"{bad} characters could not be read as {name}")
    return Decoded(text, name, source, tuple(warnings))
