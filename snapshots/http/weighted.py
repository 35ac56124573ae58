"""What `Accept`, `Accept-Language` and `Accept-Encoding` list: names with parameters and a weight (RFC 9110, 12.4.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Item(NamedTuple):
    """A name with its parameters but `q`, in lower case and without spaces, and its weight."""

    name: str
    parameters: tuple[str, ...]
    weight: float


@lru_cache(maxsize=4096)
def items_of(field: str) -> tuple[Item, ...]:
    """The items of a field, in order."""
    found = []
    for text in field.lower().split(","):
        name, *parameters = ("".join(part.split()) for part in text.split(";"))
        weight = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if name:
            found.append(Item(name, tuple(p for p in parameters if not p.startswith("q=")), weight))
    return tuple(found)


def _quality(text: str) -> float:
    """The weight that a `q` gives; what is none weighs nothing."""
    try:
        return float(text)
    except ValueError:
        return 0.0
