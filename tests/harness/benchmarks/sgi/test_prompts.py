"""The judges' prompts of SGI-Bench: packaged in a data file, replaced by a task's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.benchmarks.sgi.common import packaged_prompts, prompt
from stillweb.harness.datasets import load_tasks
from stillweb.harness.results.certificate import judges_wording
from stillweb.harness.scoring import Context, score
from stillweb.harness.scoring.grading import grader_template
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from tests.harness.benchmarks.sgi.samples import BALLOT, IDEA, RECORD, STEPS
from tests.harness.scoring.standins import Answers, Words


def research(template: Any) -> Task:
    reference = {"answer": "0.25", "steps": ["one"]}
    return Task("d", "How {much}?", reference, "sgi-deep-research", options={"template": template})


def test_a_tasks_own_prompts_take_the_place_of_the_packaged_ones() -> None:
    judge = Answers(STEPS)
    own = {"judge": "Q {question} S {solution} {other}", "parser": "Like {example}."}
    score(research(own), "<answer>{steps}</answer>", Context(judge=judge))
    assert judge.calls[1][0] == "Q How {much}? S <answer>{steps}</answer> {other}"
    score(research("Only {steps}"), "x", Context(judge=judge))
    assert judge.calls[3][0] == "Only one"


def test_the_idea_prompt_can_be_replaced_too() -> None:
    judge = Answers(BALLOT.replace("%s", "A"))
    task = Task("i", "?", RECORD, "sgi-idea-generation", options={"template": "A={a} B={b}"})
    score(task, json.dumps(IDEA), Context(judge=judge, embedder=Words()))
    assert judge.calls[0][0].startswith("A=Idea: Original thought.")
    assert judge.calls[1][0].startswith("A=Idea: Alpha beta")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("no place at all", r"judge must hold \{question\}, \{steps\}"),
        ({"judge": 3}, "judge must hold"),
        ({"grader": "{question}"}, "an object of judge and parser"),
        (7, "must be a text, or an object"),
    ],
)
def test_a_template_that_can_not_be_filled_is_named(template: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"task d: options.template.*{says}"):
        score(research(template), "x", Context(judge=Answers(STEPS)))


@pytest.mark.parametrize("scorer", ["sgi-deep-research", "sgi-idea-generation", "sgi-dry-experiment"])
def test_no_place_of_a_packaged_prompt_stays_open(scorer: str) -> None:
    import re

    task = Task("t", "?", {}, scorer)
    for name, text in (("judge", packaged_prompts()[scorer]), ("parser", packaged_prompts()["parser"])):
        places = re.findall(r"\{(\w+)\}", text)
        filled = prompt(task, name, dict.fromkeys(places, "filled in"))
        assert places
        assert filled.count("filled in") == len(places)
        assert not re.search(r"\{\w+\}", filled)


def test_a_record_brings_its_options(tmp_path: Path) -> None:
    record = {"idx": "d1", "question": "?", "steps": ["a"], "answer": "1", "options": {"template": "{steps}"}}
    path = tmp_path / "deep.jsonl"
    path.write_text(json.dumps(record) + "\n")
    tasks = load_tasks(path)
    assert tasks[0].scorer == "sgi-deep-research"
    assert tasks[0].options == {"template": "{steps}"}
    assert tasks.notices == ()


def test_the_certificate_names_whose_words_the_judges_were_asked_with() -> None:
    graded = Task("a", "?", "x", "browsecomp")
    own = Task("b", "?", "x", "browsecomp", options={"template": "{question}"})
    found = judges_wording([graded, own, research(None), research("Only {steps}"), Task("c", "?", "x")])
    assert {scorer: [one["wording"] for one in wordings] for scorer, wordings in found.items()} == {
        "browsecomp": ["options.template", "simple-evals-ee3b031"],
        "sgi-deep-research": ["options.template", "sgi-bench-8268d43"],
    }
    assert judges_wording([Task("c", "?", "x")]) == {}
    again = judges_wording([Task("b", "?", "x", "browsecomp", options={"template": "{response}"})])
    assert again["browsecomp"][0]["sha256"] != found["browsecomp"][0]["sha256"]


def test_the_packaged_prompts_name_their_source_and_licence() -> None:
    assert "InternScience/SGI-Bench, commit " in packaged_prompts()["source"]
    assert packaged_prompts()["licence"]
    assert "wording is our own" in grader_template()["source"]


def test_judges_get_the_authors_system_prompt_and_the_bare_question() -> None:
    judge = Answers(STEPS)
    told = Task("d", "How much?\n\nAnswer in tags.", {"answer": "1", "steps": []}, "sgi-deep-research")
    told.meta["problem"] = "How much?"
    score(told, "x", Context(judge=judge))
    assert judge.told[1] == "You are a helpful assistant."
    assert "## Question  \nHow much?\n\n## Reference" in judge.calls[1][0]


def test_the_idea_prompt_is_laid_out_as_the_authors_lay_it_out() -> None:
    judge = Answers(BALLOT.replace("%s", "A"))
    score(
        Task("i", "?", RECORD, "sgi-idea-generation"),
        json.dumps(IDEA),
        Context(judge=judge, embedder=Words()),
    )
    asked = judge.calls[0][0]
    assert "##Background context:\nContext:\nrelated_work: {'a': 'omega psi'}\n\nchallenge: x\n\n" in asked
    assert (
        "ImplementationSteps: {'1': 'mix', '2': 'heat'}\n\nImplementationOrder: ['1-2']\n\nDataset: x"
        in asked
    )
    assert asked.index("Dataset: some") < asked.index("EvaluationMetrics: {'m': 'n'}")
