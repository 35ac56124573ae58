"""Sort, read, write, search and free long values in steps that let other threads of the interpreter go on meanwhile."""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from heapq import merge
from itertools import islice
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, AnyStr, TypeVar

T = TypeVar("T", bytes, str, tuple[str, str])

RUN = 1 << 12  # values; no other thread runs while `sorted` works: 2 ms for these, 50 ms for 66,000 pairs


def in_order(values: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """Return `sorted(values, key=key)`, a long list by merging sorted runs."""
    listed = list(values)
    if len(listed) <= RUN:
        return sorted(listed, key=key)
    runs = (sorted(listed[at : at + RUN], key=key) for at in range(0, len(listed), RUN))
    return list(merge(*runs, key=key))


# Characters; a C parser or encoder takes up to 2 ms for the first, a pattern for the second, and keeps the interpreter.
STEP, PIECE = 1 << 16, 1 << 15
_PLAIN = json.JSONEncoder()


def read_json(decoder: json.JSONDecoder, text: str) -> Any:
    """Return `decoder.decode(text)`; a long text is read by Python's own scanner, value by value.

    That scanner takes the digits of other scripts, too, before Python 3.13: the decoder's own hooks must refuse them.
    """
    if len(text) > STEP:
        decoder = copy(decoder)
        decoder.scan_once = py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(text)


def write_json(value: Any, size: int, encoder: json.JSONEncoder = _PLAIN) -> str:
    """Return `encoder.encode(value)`. A value whose text has about `size` characters is written piece by piece if that is long."""
    if size <= STEP:
        return encoder.encode(value)
    if encoder.sort_keys:
        encoder = copy(encoder)
        encoder.sort_keys, value = False, _with_sorted_names(value)
    pieces = iter(encoder.iterencode(value))
    return "".join(iter(lambda: "".join(islice(pieces, RUN)), ""))


def _with_sorted_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_sorted_names(value[name]) for name in in_order(value)}
    return [_with_sorted_names(item) for item in value] if isinstance(value, list) else value


def matches(pattern: re.Pattern[AnyStr], text: AnyStr, reach: int) -> Iterator[re.Match[AnyStr]]:
    """Yield the matches of `pattern.finditer(text)`. `reach` is the greatest length of a match with its lookahead."""
    at = 0
    while at < len(text):
        end = at + PIECE
        for match in pattern.finditer(text, at, end + reach):
            if match.start() >= end:
                break
            yield match
            end = max(end, match.end())
        at = end


def cut_at(mark: AnyStr, text: AnyStr) -> Iterator[AnyStr]:
    """Yield the pieces of a text between some of its marks, at least `PIECE` characters each; joined by the mark, they give the text."""
    at = 0
    while (end := text.find(mark, at + PIECE)) >= 0:
        yield text[at:end]
        at = end + len(mark)
    yield text[at:]


def free(values: list[Any]) -> None:
    """Empty a list, and free one by one what nothing else holds: its values, what these hold, and so on."""
    while values:
        one = values.pop()
        if sys.getrefcount(one) <= 2:  # `one` alone holds it
            if isinstance(one, dict):
                while one:
                    values += one.popitem()
            else:
                values += gc.get_referents(one)


def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return `dict(pairs)`. A long list is empty afterwards: its 55,000 pairs hold the interpreter for 10 ms, and 2 ms when freed."""
    if len(pairs) <= RUN:
        return dict(pairs)
    made: dict[str, Any] = {}
    for at in range(0, len(pairs), RUN):
        made.update(pairs[at : at + RUN])
    free(pairs)
    return made
