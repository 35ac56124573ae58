"""Verdicts that a client accepts: the values of `--accept`."""

from __future__ import annotations

from dataclasses import dataclass

from stillweb.snapshots.errors import UsageError

LEVELS = ("exact", "canonical", "varies", "rule")  # each with all before it


@dataclass(frozen=True, slots=True)
class AcceptLevel:
    """The last of the levels that is taken, and whether nothing ambiguous is."""

    level: int
    unambiguous: bool

    @property
    def by_rule(self) -> bool:
        """Return True if a rule may join a request with a recorded one."""
        return self.level >= LEVELS.index("rule")

    @classmethod
    def read(cls, text: str) -> AcceptLevel:
        """From its text. Raises UsageError for any other."""
        name, plus, more = text.partition("+")
        if name not in LEVELS or (plus and more != "unambiguous"):
            raise UsageError(
                f"accept {text!r}: must be one of {', '.join(LEVELS)}, with or without +unambiguous"
            )
        return cls(LEVELS.index(name), bool(plus))


def check_accept(text: str) -> str:
    """Return the text if `accept` may be it; else raise UsageError."""
    AcceptLevel.read(text)
    return text
