"""What the official scorer of ideas reads of an answer that is not JSON alone, and what it makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stillweb.harness.benchmarks.sgi.idea import official_reading
from stillweb.harness.scoring import Context, Score, score
from stillweb.harness.task import Task
from tests.harness.benchmarks.sgi.samples import BALLOT, RECORD
from tests.harness.scoring.standins import Answers, Words

SECTIONS = {
    "Idea": "alpha beta, warmed by \\(\\alpha\\)",
    "ImplementationSteps": {"1": "mix", "2": "heat"},
    "ImplementationOrder": ["1-2"],
    "Dataset": "plates",
    "EvaluationMetrics": {"growth": "grams"},
    "ExpectedOutcome": "less",
}


def scored(answer: str, mode: Any = "faithful") -> tuple[Score, Answers]:
    judge = Answers(BALLOT.replace("%s", "A"))
    task = Task("i", "?", RECORD, "sgi-idea-generation")
    return score(task, answer, Context(judge=judge, embedder=Words(), mode=mode)), judge


@pytest.mark.parametrize(
    "answer",
    [
        "Here it is:\n" + json.dumps(SECTIONS),
        json.dumps(SECTIONS).replace(
            "\\\\", "\\"
        ),  # a formula's backslash, which JSON has no such escape for
        "```json\n" + json.dumps(SECTIONS, indent=2)[:-1] + ",}\n```",
        "1. Idea: alpha beta, warmed by \\(\\alpha\\)\n2. Implementation Steps: {'1': 'mix', '2': 'heat'}\n"
        "3. Implementation Order: ['1-2']\n4. Dataset: plates\n5. Evaluation Metrics: 'growth': 'grams'\n"
        "6. Expected Outcome: less\n",
    ],
    ids=["prose", "backslash", "comma", "headings"],
)
def test_sections_of_what_is_not_json_alone(answer: str) -> None:
    read = official_reading(answer)
    assert read == SECTIONS | {"Idea": read["Idea"]}
    assert read["Idea"].startswith("alpha beta, warmed by \\")
    got, judge = scored(answer)
    assert got.detail["objective"]["feasibility"] == pytest.approx(10)
    assert "Idea: alpha beta" in judge.calls[0][0]


def test_a_text_ends_at_the_first_quote_of_any_kind_as_the_official_pattern_has_it() -> None:
    answer = 'Sure! {"Idea": "alpha beta don\'t gamma", "ImplementationSteps": {"1": "it\'s hot"}}'
    assert official_reading(answer) == {"Idea": "alpha beta don", "ImplementationSteps": {"1": "it"}}
    got, judge = scored(answer, "fixed")
    assert "don't gamma" in judge.calls[0][0]  # fixed takes the object amid the prose
    why = {entry["metric"]: entry["why"] for entry in got.detail["differs"]}
    assert "not JSON alone" in why["effectiveness"]


def test_json_is_taken_as_it_is_and_prose_has_no_sections() -> None:
    assert official_reading(json.dumps(SECTIONS)) == SECTIONS
    assert official_reading("```\n[1]\n```") == [1]
    assert official_reading("I'd rather not.") == {}
    assert official_reading("[" * 100_000) == {}
    assert official_reading("1. Idea" + "\n" * 30_000) == {}


def test_headings_without_a_text_between() -> None:
    assert official_reading("1. Idea:\n2. Implementation Steps") == {"Idea": ""}
    assert official_reading("1. Idea\n\n\n2. x") == {"Idea": ""}


@pytest.mark.parametrize("answer", ["```json\n[1]\n```", "3", '{"Idea": null}', '{"Idea": 3}'])
def test_where_the_official_scorer_fails_it_counts_0(answer: str) -> None:
    got, _ = scored(answer)
    assert set(got.metrics.values()) == {0}
    assert "counts 0" in got.detail["differs"][0]["why"]
    assert set(scored('{"Data": "x"}')[0].metrics.values()) != {0}  # no idea is an empty one, not a failure


def test_sections_given_as_null_are_the_ones_the_official_scorer_misses() -> None:
    whole = scored(json.dumps(SECTIONS))[0].detail["objective"]["detailedness"]
    for name in ("Dataset", "ExpectedOutcome"):
        without = {key: value for key, value in SECTIONS.items() if key != name}
        null = scored(json.dumps(SECTIONS | {name: None}))[0].detail["objective"]["detailedness"]
        assert scored(json.dumps(without))[0].detail["objective"]["detailedness"] == whole
        assert null == pytest.approx(whole - 0.2 * 10 / 6)


def test_no_newer_work_to_compare_with_is_the_most_novel_there_is_to_the_official_scorer() -> None:
    task = Task("i", "?", RECORD | {"related_work_test": {}}, "sgi-idea-generation")
    found = {}
    for mode in ("faithful", "fixed"):
        context = Context(judge=Answers(BALLOT.replace("%s", "A")), embedder=Words(), mode=mode)  # type: ignore[arg-type]
        found[mode] = score(task, json.dumps(SECTIONS), context).detail["objective"]["novelty"]
    assert found["faithful"] == pytest.approx(found["fixed"] + 5)
