"""Text helpers: plurals, sizes and did-you-mean for messages, whole numbers, the texts in a JSON value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def pluralize(number: int, what: str) -> str:
    """Format a number with its noun, whose last word gets the plural: 1 miss, 2 misses, 0 tool calls."""
    if number == 1:
        return f"{number} {what}"
    if what.endswith("y") and what[-2:-1] not in "aeiou":
        return f"{number} {what[:-1]}ies"
    return f"{number} {what}{'es' if what.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def sized(count: int) -> str:
    """Format a number of bytes: 2.0 MB, 18 kB, 120 bytes."""
    if count >= 1e6:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.0f} kB" if count >= 1e3 else pluralize(count, "byte")


def did_you_mean(word: str, known: Sequence[str], most: int = 3) -> str:
    """Return "; did you mean …?" with the known words closest to a misspelt one; "" if none is close."""
    from difflib import get_close_matches  # imported late: only mistakes need it

    near = get_close_matches(word, known, most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def whole_number(text: str) -> int | None:
    """Return the number that a text of at most 18 ASCII digits says, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def as_text(data: bytes) -> str:
    """Return bytes as text, by Latin-1 if they are not UTF-8: to replace each that is wrong takes seconds for a large file."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, in order, without the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)
