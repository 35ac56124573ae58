"""Which verdicts a client takes."""

from __future__ import annotations

import pytest

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.accepting import LEVELS, Accept, check_accept


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_taken_with_or_without_what_is_unsure(level: str) -> None:
    assert Accept.read(level) == Accept(LEVELS.index(level), unambiguous=False)
    assert Accept.read(f"{level}+unambiguous") == Accept(LEVELS.index(level), unambiguous=True)
    assert check_accept(level) == level


@pytest.mark.parametrize("text", ["", "Exact", "rule+", "+unambiguous", "rule+sure", "rule+unambiguous+"])
def test_anything_else_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="must be one of exact, canonical, varies, rule"):
        check_accept(text)
