"""Weighted lists in `Accept`, `Accept-Language` and `Accept-Encoding` (RFC 9110, 12.4.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Item(NamedTuple):
    """A name with its weight and its other parameters, in lower case and without spaces."""

    name: str
    parameters: tuple[str, ...]
    weight: float


MOST = 200  # items of a field that are heeded: 100 kB of them took 3 MB, and were remembered


@lru_cache(maxsize=512)
def items_of(field: str) -> tuple[Item, ...]:
    """Parse the first `MOST` items of a field, in order."""
    found = []
    for text in field.lower().split(",", MOST)[:MOST]:
        name, *parameters = ("".join(part.split()) for part in text.split(";"))
        weight = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if name:
            found.append(Item(name, tuple(p for p in parameters if not p.startswith("q=")), weight))
    return tuple(found)


def _quality(text: str) -> float:
    """Return the weight in a `q` parameter, or 0 if it is no number."""
    try:
        return float(text)
    except ValueError:
        return 0.0
