"""What an importer says of what it had to leave out: text, that of damage marked as such."""

from __future__ import annotations


class Damaged(str):
    """A note on what can't be read because the file is not as it was written."""

    __slots__ = ()
