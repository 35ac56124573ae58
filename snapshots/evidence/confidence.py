"""Confidence of answers, as users set and see it: thresholds, hundredths, and the expected number of wrong answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillweb.snapshots.errors import UsageError

SURE = 0.99  # from here on an answer is sure, below it presumed
SERVED = 0.65  # the least confidence served by default
_WHOLE = 1_000_000  # doubts are counted in whole millionths, so that no sum depends on its order
_SLACK = 0.001  # millionths that a float may err by


def read_confidence(value: str | float) -> float:
    """Return a threshold: a number from 0 to 1, or `sure`. Raise UsageError for anything else."""
    if value == "sure":
        return SURE
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise UsageError(f"min-confidence {value!r}: must be a number from 0 to 1, or sure")
    return number


@dataclass(frozen=True, slots=True)
class Confidence:
    """The confidence of one or more answers.

    `hundredths` is the chance that the most doubtful of them is right, rounded down. `millionths` is the expected number of wrong
    ones, rounded up. `presumed` is the number of those that are less likely than SURE.
    """

    hundredths: int = 100
    millionths: int = 0
    presumed: int = 0

    @classmethod
    def of(cls, chance: float) -> Confidence:
        """Return the confidence in one answer that is right by this chance."""
        millionths = max(0, math.ceil((1 - chance) * _WHOLE - _SLACK))
        return cls((_WHOLE - millionths) * 100 // _WHOLE, millionths, int(chance < SURE))

    def __add__(self, other: Confidence) -> Confidence:
        return Confidence(
            min(self.hundredths, other.hundredths),
            self.millionths + other.millionths,
            self.presumed + other.presumed,
        )

    @property
    def value(self) -> float:
        """The chance that the most doubtful answer is right, in hundredths rounded down."""
        return self.hundredths / 100

    @property
    def doubt(self) -> float:
        """The expected number of wrong answers."""
        return self.millionths / _WHOLE

    def members(self) -> dict[str, Any]:
        """Return the members of ledgers, traces and tool results: `confidence`, and `doubt` and `presumed` unless 0."""
        out: dict[str, Any] = {"confidence": self.value}
        if self.millionths:
            out["doubt"] = self.doubt
        if self.presumed:
            out["presumed"] = self.presumed
        return out

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Confidence | None:
        """Return the confidence that the members of an entry or event tell; None if they tell none."""
        if members.get("confidence") is None:
            return None
        return cls(
            round(members["confidence"] * 100),
            round(members.get("doubt", 0) * _WHOLE),
            int(members.get("presumed", 0)),
        )

    def header(self) -> str:
        """Return the value of the header field `Stillweb-Confidence`."""
        value = f"{self.value:.2f}"
        value += f"; doubt={self.doubt:.6f}" if self.millionths else ""
        return value + (f"; presumed={self.presumed}" if self.presumed else "")

    @classmethod
    def parse(cls, header: str | None) -> Confidence | None:
        """Return the confidence of a header field; None without one."""
        if header is None:
            return None
        first, *rest = header.split(";")
        pairs = (one.partition("=") for one in rest)
        return cls.read(
            {"confidence": float(first), **{name.strip(): float(value) for name, _, value in pairs}}
        )

    def __str__(self) -> str:
        return f"{self.value:.2f}"


def combine(one: Confidence | None, other: Confidence | None) -> Confidence | None:
    """Return the confidence in two answers; None stands for an answer without doubt."""
    return one + other if one is not None and other is not None else one or other
