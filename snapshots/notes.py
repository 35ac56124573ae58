"""What is said of what was wrong in an archive or left out of it: text, that of damage marked as such."""

from __future__ import annotations

from collections.abc import Iterable


class Damaged(str):
    """A note on what can't be read because the file is not as it was written."""

    __slots__ = ()


def note(notes: list[str], text: str) -> None:
    """Add a note of damage, once."""
    if text not in notes:
        notes.append(Damaged(text))


def to_plain(notes: Iterable[str]) -> list[tuple[str, bool]]:
    """Notes as what marshal and JSON take, each with whether it is of damage."""
    return [(str(note), isinstance(note, Damaged)) for note in notes]


def from_plain(values: Iterable[tuple[str, bool]]) -> list[str]:
    """The inverse of `to_plain`."""
    return [Damaged(text) if damaged else text for text, damaged in values]


def damage_in(notes: Iterable[str]) -> list[str]:
    """Those of the notes that are of damage."""
    return [note for note in notes if isinstance(note, Damaged)]
