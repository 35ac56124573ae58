"""Patterns are read alike by every Python that is supported."""

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MAYBE = re.compile(r"[*+?}]\+")


def patterns(source: str) -> Iterator[Any]:
    """The string constants that may be patterns with a possessive quantifier, parsed."""
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, bytes):
            text = text.decode("latin-1")
        if isinstance(text, str) and MAYBE.search(text):
            try:
                with warnings.catch_warnings(action="ignore"):
                    yield parser.parse(text)
            except (re.error, OverflowError):
                continue  # no pattern


def possessive_groups(parsed: Any) -> bool:
    """Whether a quantifier that gives nothing back stands behind more than one character."""
    for code, value in parsed:
        if code is codes.POSSESSIVE_REPEAT:
            inner = value[2]
            if len(inner) != 1 or inner[0][0] not in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
                return True
        for part in value if isinstance(value, (tuple, list)) else (value,):
            for one in part if isinstance(part, list) else (part,):
                if isinstance(one, parser.SubPattern) and possessive_groups(one):
                    return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("package", ["snapshots", "proxy", "harness"])
def test_no_group_is_quantified_possessively(package: str) -> None:
    """Python up to 3.11.4, which Debian 12 has, goes on behind what such a group matched in part (gh-106052)."""
    wrong = [
        str(path)
        for path in sorted((ROOT / package).rglob("*.py"))
        if any(possessive_groups(one) for one in patterns(path.read_text()))
    ]
    assert not wrong


def test_that_test_sees_one() -> None:
    def seen(pattern: str) -> list[bool]:
        return [possessive_groups(one) for one in patterns(f"re.compile(r{pattern!r})")]

    for pattern in ("(?:ab?)*+c", "x(?:(?:ab)?+|c)", "(?>(?:a|bc)++)", "(a|(?=(?:bc){2,3}+))"):
        assert seen(pattern) == [True], pattern
    for pattern in ("a*+b", "[^x]++y", r"\s?+z", "(?>(?:ab)*)c*+"):
        assert seen(pattern) == [False], pattern
    assert seen("no (pattern*+") == []
