"""What differs from one visit of a page to the next without being another state of it.

Learned, not guessed: when a known view is reached again, lines that differ only in their numbers (how long a query
took, how many people are reading) are noise from then on, wherever they appear.
"""

from __future__ import annotations

import difflib
import hashlib
import re

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_FLAGS = re.compile(r" \[(selected|checked|expanded|active)\]")
_CONTENT = re.compile(r"^(\s*- (?:textbox|searchbox|spinbutton|combobox|slider)\b[^\n:]*): .*$", re.MULTILINE)
_ADDRESS = re.compile(r"^(\s*- /url: )([^?\n]*)\?(\S+)$", re.MULTILINE)


def _in_order(found: re.Match[str]) -> str:
    query, mark, fragment = found[3].partition("#")
    return f"{found[1]}{found[2]}?{'&'.join(sorted(query.split('&')))}{mark}{fragment}"


def shown(text: str, aria: str) -> str:
    """What a page shows, without what its fields hold (choosing alone is no other view) and how its links are spelt."""
    fields = _ADDRESS.sub(_in_order, _CONTENT.sub(r"\1", _FLAGS.sub("", aria)))
    return f"{text}\n{fields}"


def _mask(line: str) -> str:
    return _NUMBER.sub("#", line.strip())


class Noise:
    """The masks of the lines that are known to change by themselves."""

    def __init__(self, masks: list[str] | None = None) -> None:
        self.masks = set(masks or ())

    def learn(self, before: str, after: str) -> bool:
        """Compare two visits of one view; whether something new was learned."""
        if before == after:
            return False
        old, new = before.splitlines(), after.splitlines()
        known = len(self.masks)
        for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "replace" and b - a == d - c:
                for one, other in zip(old[a:b], new[c:d], strict=True):
                    if _mask(one) == _mask(other) and "#" in _mask(one):
                        self.masks.add(_mask(one))
        return len(self.masks) > known

    def look(self, text: str) -> str:
        """A hash of what is shown, noise aside: one view, one look."""
        lines = (_mask(line) if _mask(line) in self.masks else line for line in text.splitlines())
        return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()
