"""Words for people that all three packages say alike."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, what: str) -> str:
    """A number with its noun, of which the last word is made more than one: 1 miss, 2 misses, 0 tool calls."""
    if number == 1:
        return f"{number} {what}"
    if what.endswith("y") and what[-2:-1] not in "aeiou":
        return f"{number} {what[:-1]}ies"
    return f"{number} {what}{'es' if what.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def meant(word: str, known: Sequence[str], most: int = 3) -> str:
    """The known words that come nearest to one that is not among them, to be put behind what says so; "" where none is near."""
    from difflib import get_close_matches  # for a mistake only

    near = get_close_matches(word, known, most)
    return f"; meant is {' or '.join(map(repr, near))}?" if near else ""
