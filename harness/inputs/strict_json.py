"""JSON that people and benchmarks wrote: what a reader would lose or make up of it is an error."""

from __future__ import annotations

import json
from typing import Any


class StandsTwice(ValueError):
    """A member that stands twice in an object."""


def strict_json(text: str) -> Any:
    """The value of a JSON text. ValueError also for NaN and Infinity, which are no JSON, for endless nesting, and for a
    member that stands twice in an object, of which the first would be lost."""
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise StandsTwice(f"the member {twice!r} stands twice in an object")
    return found
