"""Words for people that all three packages say alike."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number with its noun, of which the last word is made more than one: 1 miss, 2 misses, 0 tool calls."""
    if number == 1:
        return f"{number} {what}"
    if what.endswith("y") and what[-2:-1] not in "aeiou":
        return f"{number} {what[:-1]}ies"
    return f"{number} {what}{'es' if what.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
