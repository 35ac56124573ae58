"""Notes on an archive's faults and omissions; notes of damage have a type of their own."""

from __future__ import annotations

from collections.abc import Iterable


class DamageNote(str):
    """A note on data that can't be read because the file is corrupt."""

    __slots__ = ()


def note(notes: list[str], text: str) -> None:
    """Add a note of damage unless it is there already."""
    if text not in notes:
        notes.append(DamageNote(text))


def to_plain(notes: Iterable[str]) -> list[tuple[str, bool]]:
    """Convert notes to values for marshal and JSON: pairs of text and True if the note is of damage."""
    return [(str(note), isinstance(note, DamageNote)) for note in notes]


def from_plain(values: Iterable[tuple[str, bool]]) -> list[str]:
    """Convert the output of `to_plain` back to notes."""
    return [DamageNote(text) if damaged else text for text, damaged in values]


def damage_in(notes: Iterable[str]) -> list[str]:
    return [note for note in notes if isinstance(note, DamageNote)]
