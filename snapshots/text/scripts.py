"""Raised and lowered text in a line of plain text: `10^6`, `x^(n+1)`, `log_2 8`, but 1st and H2O."""

from __future__ import annotations

import re

_SIGN = r"[-+\u2212\u2013]"
# not e and o, which are endings of ordinals (XIXe, no)
_TERM = re.compile(rf"{_SIGN}?(?:\d+(?:[.,/]\d+)*|[a-df-np-z])[-+\u2212]?|T")
_PART = r"(?:\d+[a-z]?|[a-zA-Z])"
_SUM = re.compile(rf"{_SIGN}?{_PART}(?:[-+\u2212\u2013*/\u00b7]{_PART})+|{_SIGN}?\d+[a-z]")
_FRACTION_BARS = ("/", "\u2044")


def raised_mark(text: str, before: str, after: str) -> str:
    """Return the mark before a raised text that would read as another word without it, else "".

    Numbers and letters have `^`, sums `^(`, whose bracket is to be closed; endings of words have none. The numerator
    of a fraction is parted from the word before it.
    """
    if text.isdigit() and after[:1] in _FRACTION_BARS:
        return " " if before[-1:].isalnum() else ""
    if _TERM.fullmatch(text):
        return "^"
    return "^(" if _SUM.fullmatch(text) else ""


def lowered_mark(text: str, before: str, after: str) -> str:
    """Return the mark before lowered digits that stand next to other digits, else ""."""
    return "_" if text.isdigit() and (before[-1:].isdigit() or after[:1].isdigit()) else ""
