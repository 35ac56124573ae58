"""Numbers with their nouns, and words that were misspelt."""

import pytest

from stillweb.snapshots.words import did_you_mean, pluralize, sized


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
    assert pluralize(number, what) == said


def test_a_size_of_a_small_file_is_not_nothing() -> None:
    assert [sized(count) for count in (1, 120, 18_060, 2_040_000)] == [
        "1 byte",
        "120 bytes",
        "18 kB",
        "2.0 MB",
    ]


def test_a_word_that_is_not_there_is_told_with_those_that_come_nearest() -> None:
    known = ["birds_001", "birds_002", "weather"]
    assert did_you_mean("birds_003", known) == "; did you mean 'birds_002' or 'birds_001'?"
    assert did_you_mean("birds_003", known, 1) == "; did you mean 'birds_002'?"
    assert did_you_mean("rug", known) == ""
