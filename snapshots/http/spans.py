"""Byte ranges (RFC 9110, 14): what a Range field asks, and what a Content-Range says was answered."""

from __future__ import annotations

import re

MOST_RANGES = 64  # more in one request are answered with the whole, as RFC 9110 14.2 allows
UNKNOWN = 1 << 62  # bytes of a whole whose size isn't told

_SPEC = re.compile(r"[ \t]*(?:(\d{1,18})[ \t]*-[ \t]*(\d{0,18})|-[ \t]*(\d{1,18}))[ \t]*")

Span = tuple[int, int]  # first byte and the one after the last


def parse(value: str, size: int) -> list[Span] | None:
    """The satisfiable ranges that a Range field asks of a body of `size` bytes.

    None when the field is to be ignored (another unit, bad syntax, too many, more bytes than the whole);
    an empty list when no range can be satisfied (416).
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
        return None  # overlapping ranges, that only an attack asks for
    return spans


def recorded_span(value: str | None) -> tuple[int, int, int] | None:
    """First byte, the one after the last, and the size of the whole (-1 unknown) of a Content-Range."""
    match = re.fullmatch(r"bytes[ \t]+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", (value or "").strip(), re.I)
    if match is None or int(match[2]) < int(match[1]):
        return None
    return int(match[1]), int(match[2]) + 1, -1 if match[3] == "*" else int(match[3])


def inside(asked: str, told: str | None) -> Span | None:
    """The one range that a Range field asks, if it lies in what a Content-Range says; first byte and one after the last."""
    have = recorded_span(told)
    if have is None:
        return None
    start, stop, size = have
    spans = parse(asked, size if size >= 0 else UNKNOWN)
    if spans is None or len(spans) != 1:
        return None
    first, last = spans[0]
    return spans[0] if start <= first and last <= stop else None


def is_whole(told: str | None, length: str | None) -> bool:
    """Whether a part with this Content-Range and Content-Length is all of its file."""
    have = recorded_span(told)
    return have is not None and have[0] == 0 and have[1] == have[2] and length == str(have[2])
