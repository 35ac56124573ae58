"""Sort, read, write and search long values in steps that let other threads of the interpreter go on meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from copy import copy
from heapq import merge
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, TypeVar

T = TypeVar("T", bytes, str, tuple[str, str])

RUN = 1 << 12  # values; no other thread runs while `sorted` works: 2 ms for these, 50 ms for 66,000 pairs


def in_order(values: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """Return `sorted(values, key=key)`, a long list by merging sorted runs."""
    listed = list(values)
    if len(listed) <= RUN:
        return sorted(listed, key=key)
    runs = (sorted(listed[at : at + RUN], key=key) for at in range(0, len(listed), RUN))
    return list(merge(*runs, key=key))


STEP = (
    1 << 16
)  # characters; a C parser, encoder or pattern takes up to 2 ms for these, and keeps the interpreter


def read_json(decoder: json.JSONDecoder, text: str) -> Any:
    """Return `decoder.decode(text)`; a long text is read by Python's own scanner, value by value.

    That scanner takes the digits of other scripts, too, before Python 3.13: the decoder's own hooks must refuse them.
    """
    if len(text) > STEP:
        decoder = copy(decoder)
        decoder.scan_once = py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(text)


def write_json(encoder: json.JSONEncoder, value: Any, size: int) -> str:
    """Return `encoder.encode(value)`. A value whose text has about `size` characters is written piece by piece if that is long."""
    if size <= STEP:
        return encoder.encode(value)
    if encoder.sort_keys:
        encoder = copy(encoder)
        encoder.sort_keys, value = False, _with_sorted_names(value)
    return "".join(encoder.iterencode(value))


def _with_sorted_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_sorted_names(value[name]) for name in in_order(value)}
    return [_with_sorted_names(item) for item in value] if isinstance(value, list) else value


def occurs(pattern: re.Pattern[str], text: str) -> bool:
    """Return True if a pattern of two characters or one occurs in a text."""
    return any(pattern.search(text, at, at + STEP + 1) for at in range(0, len(text), STEP))
