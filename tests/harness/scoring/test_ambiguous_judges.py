"""A judge that chooses nothing has not chosen the first word that it wrote."""

from __future__ import annotations

import pytest

from stillweb.harness.benchmarks.sgi.idea import parse_votes
from stillweb.harness.benchmarks.sgi.idea_formulas import DIMENSIONS
from stillweb.harness.scoring.grading import GradeError, grader_template, parse_grade
from tests.support.spending import cpu_seconds

VOTED = (*DIMENSIONS, "overall")
OURS = next(line for line in grader_template()["template"].split("\n") if line.startswith("correct:"))


BALLOT = "\n".join(f"{name}: [Win A] because so" for name in VOTED)


def graded(line: str) -> str:
    return f"extracted_final_answer: Alpha\nreasoning: the same\n{line}\nconfidence: 80%"


@pytest.mark.parametrize(
    "line",
    [
        "correct: yes/no",
        "correct: no | yes",
        "correct: **yes** / **no**",
        "correct: yes, or rather no",
        OURS,  # the prompt's own words, given back
        "correct: yes\nreasoning: so the response says of itself\ncorrect: The answer is wrong",
    ],
)
def test_both_words_or_none_are_no_verdict(line: str) -> None:
    with pytest.raises(GradeError, match="no line"):
        parse_grade(graded(line))


@pytest.mark.parametrize(
    "line", ["correct: yes, no difference", "correct: yes (1/2 is 0.5)", "correct: yes."]
)
def test_what_follows_a_verdict_does_not_undo_it(line: str) -> None:
    assert parse_grade(graded(line)).correct


def test_winning_in_a_sentence_is_no_vote() -> None:
    prose = "\n".join(f"{name}: neither would win a prize, but Win B" for name in VOTED)
    assert parse_votes(prose) == dict.fromkeys(VOTED, "B")
    assert parse_votes(prose.replace("Win B", "B")) is None


def test_the_prompts_own_words_are_no_vote() -> None:
    given_back = "\n".join(f"{name}: [Win A or Win B] because ..." for name in VOTED)
    assert parse_votes(given_back) is None
    assert parse_votes(given_back.replace("...", "... [Win B]")) == dict.fromkeys(VOTED, "B")


def test_a_judge_that_says_nothing_but_line_breaks_is_read() -> None:
    with cpu_seconds() as spent:
        assert parse_votes("\n" * 20_000) is None
        assert parse_votes("\n" * 20_000 + BALLOT) == parse_votes(BALLOT) is not None
    assert spent[0] < 1.0
