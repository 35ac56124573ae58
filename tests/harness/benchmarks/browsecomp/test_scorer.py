"""BrowseComp's grader: the authors' prompt, and their expression in faithful mode."""

from typing import Any

import pytest

from stillweb.harness.benchmarks.browsecomp.scorer import official_texts
from stillweb.harness.scoring import Context, score
from stillweb.harness.task import Task
from tests.harness.scoring.standins import Answers


def graded(said: str, mode: Any = "faithful", **options: Any) -> Any:
    judge = Answers(said)
    task = Task("t", "prompt with pages", "Alpha", "browsecomp", {"problem": "Which lake?"}, options=options)
    return score(task, "It is {Alpha}.", Context(judge=judge, mode=mode, env={"GRADER_MODEL": "g"})), judge


@pytest.mark.parametrize(
    ("said", "faithful", "fixed"),
    [
        ("reasoning: same\n\ncorrect: yes\n\nconfidence: 100", 1, 1),
        ("correct: no", 0, 0),
        ("Correct: Yes", 0, 1),
        ("**correct:** yes", 0, 1),
        ("correct:yes", 0, 1),
        ("reasoning: I first thought correct: no, but\ncorrect: yes", 0, 1),
        ("incorrect: yes\ncorrect: no", 1, 0),
        ("correct: yes or no", 1, None),
        ("correct: yesterday", 1, None),
    ],
)
def test_the_modes_read_a_graders_answer_apart(said: str, faithful: int, fixed: int | None) -> None:
    one, other = graded(said)[0], graded(said, "fixed")[0]
    assert (one.metrics["correct"], other.metrics["correct"]) == (faithful, fixed)
    assert bool(one.detail["differs"]) == (faithful != fixed)
    assert ("fault" in other.detail) == (fixed is None)


def test_an_answer_without_any_verdict_is_not_scored_in_either_mode() -> None:
    for mode in ("faithful", "fixed"):
        got = graded("<html>429", mode)[0]
        assert (got.status, got.metrics, got.detail["fault"]) == ("unparsable", {"correct": None}, "judge")


def test_the_grader_gets_the_authors_prompt_or_that_of_the_set() -> None:
    got, judge = graded("correct: yes")
    asked = judge.calls[0][0]
    assert asked.startswith("Judge whether the following [response] to [question] is correct or not based on")
    assert "[question]: Which lake?\n\n[response]: It is {Alpha}.\n" in asked
    assert "[correct_answer]: Alpha\n" in asked
    assert got.detail["prompt"] == official_texts()["version"]
    got, judge = graded("correct: yes", template="{question} {response} {correct_answer} {other}")
    assert judge.calls[0][0] == "Which lake? It is {Alpha}. Alpha {other}"
    assert got.detail["prompt"] == "options.template"
