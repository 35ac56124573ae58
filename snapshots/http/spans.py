"""Byte ranges (RFC 9110, 14): parse Range and Content-Range, and compare them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from stillweb.snapshots.dates import not_after

MOST_RANGES = 64  # more ranges in one request get the whole body, as RFC 9110 14.2 allows
UNKNOWN = 1 << 62  # bytes of a body of unknown size

_SPEC = re.compile(r"[ \t]*(?:(\d{1,18})[ \t]*-[ \t]*(\d{0,18})|-[ \t]*(\d{1,18}))[ \t]*")

Span = tuple[int, int]  # offset of the first byte, and of the byte after the last


def parse(value: str, size: int) -> list[Span] | None:
    """Return the satisfiable ranges of a Range field for a body of `size` bytes.

    None if the field is to be ignored (another unit, bad syntax, too many ranges, more bytes than the body);
    an empty list if no range can be satisfied (416).
    """
    unit, equals, specs = value.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    spans: list[Span] = []
    given = [spec for spec in specs.split(",") if spec.strip()]
    if not given or len(given) > MOST_RANGES:
        return None
    for spec in given:
        match = _SPEC.fullmatch(spec)
        if match is None:
            return None
        first, last, suffix = match.groups()
        if suffix is not None:
            start, stop = max(0, size - int(suffix)), size
        else:
            start = int(first)
            if last and int(last) < start:
                return None
            stop = min(size, int(last) + 1) if last else size
        if start < stop:
            spans.append((start, stop))
    if len(spans) > 1 and sum(stop - start for start, stop in spans) > size:
        return None  # only attacks request overlapping ranges
    return spans


def recorded_span(value: str | None) -> tuple[int, int, int] | None:
    """Return start, end (exclusive) and total size (-1 if unknown) of a Content-Range, or None."""
    match = re.fullmatch(r"bytes[ \t]+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", (value or "").strip(), re.I)
    if match is None or int(match[2]) < int(match[1]):
        return None
    return int(match[1]), int(match[2]) + 1, -1 if match[3] == "*" else int(match[3])


def covered_range(asked: str, header: str | None) -> Span | None:
    """Return the only range of the Range field `asked` if the Content-Range `header` covers it, else None."""
    have = recorded_span(header)
    if have is None:
        return None
    start, stop, size = have
    spans = parse(asked, size if size >= 0 else UNKNOWN)
    if spans is None or len(spans) != 1:
        return None
    first, last = spans[0]
    return spans[0] if start <= first and last <= stop else None


def is_whole(header: str | None, length: str | None) -> bool:
    """Return True if a part with this Content-Range and Content-Length is the whole file."""
    have = recorded_span(header)
    return have is not None and have[0] == 0 and have[1] == have[2] and length == str(have[2])


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A recorded 206: its Content-Range and the validators of the representation that its bytes are of (RFC 9110, 8.8)."""

    content_range: str | None
    tag: str | None
    modified: str | None
    whole: bool  # whether it is all of the file
    several: bool  # whether it holds several ranges, each with its own Content-Range

    @property
    def representation(self) -> tuple[str, int] | None:
        """A validator, equal for parts of the same bytes, and the size of the whole, -1 if unknown; None where nothing tells.

        The validator is a strong tag, or else the date with any weak tag.
        """
        validator = self.tag
        if validator is None or validator.startswith("W/"):
            validator = None if self.modified is None else f"{self.modified} {self.tag}"
        have = (0, 0, -1) if self.several else recorded_span(self.content_range)
        return None if validator is None or have is None else (validator, have[2])

    def holds(self, asked: str, if_range: str | None) -> bool:
        """Return True if the one range asked for lies in this part, of the representation that If-Range names."""
        named = if_range is None or if_range.strip() in (self.tag, self.modified)
        return named and covered_range(asked, self.content_range) is not None


def recorded_range_of(header: Callable[[str], str | None]) -> RecordedRange:
    """Return the part that an answer (206) holds; `header` gives its header fields."""
    told, modified = header("content-range"), header("last-modified")
    if not_after(header("date"), modified):
        modified = None  # it may have changed again in the same second (RFC 9110, 8.8.2.2)
    several = (header("content-type") or "").lower().startswith("multipart/byteranges")
    return RecordedRange(told, header("etag"), modified, is_whole(told, header("content-length")), several)
