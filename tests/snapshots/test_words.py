"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from snapshots.words import counted


@pytest.mark.parametrize(
    ("number", "what", "said"),
    [
        (1, "miss", "1 miss"),
        (2, "miss", "2 misses"),
        (0, "tool call", "0 tool calls"),
        (1, "tool call", "1 tool call"),
        (3, "query", "3 queries"),
        (3, "key", "3 keys"),
        (2, "match", "2 matches"),
        (2, "PDF", "2 PDFs"),
    ],
)
def test_a_number_with_its_noun(number: int, what: str, said: str) -> None:
    assert counted(number, what) == said
