"""Parts that SGI-Bench's scorers share: the answer tag, and judges' replies read as json-repair reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.benchmarks.sgi.common import extract_final_answer, packaged_prompts, prompt, read_reply
from stillweb.harness.datasets import load_tasks
from stillweb.harness.results.certificate import judges_wording
from stillweb.harness.scoring import Context, score
from stillweb.harness.scoring.grading import grader_template
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from tests.harness.benchmarks.sgi.samples import BALLOT, IDEA, RECORD, STEPS, vector
from tests.harness.scoring.standins import Answers, Words


@pytest.mark.parametrize(("text", "expected"), vector("sgi_extract_final_answer.json"))
def test_answer_tag_vectors(text: str, expected: str | None) -> None:
    assert extract_final_answer(text) == expected


def full(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise ValueError("no list of objects")
    return value


SHAPES = {
    "as asked": '[{"judge": "correct", "reason": "r"}, {"judge": "incorrect", "reason": "r"}]',
    "prose and a fence": 'Sure:\n```json\n[{"judge": "correct"}, {"judge": "incorrect"}]\n```\nDone.',
    "single quotes": "[{'judge': 'correct'}, {'judge': 'incorrect'}]",
    "a LaTeX backslash": r'[{"judge": "correct", "reason": "\sin \alpha"}, {"judge": "incorrect"}]',
    "an inner quote": '[{"judge": "correct", "reason": "the "best" one"}, {"judge": "incorrect"}]',
    "a missing comma": '[{"judge": "correct"} {"judge": "incorrect"}]',
    "one object a line": '[\n{"judge": "correct"}\n{"judge": "incorrect"}\n]',
    "one object a line, no brackets": '{"judge": "correct"}\n{"judge": "incorrect"}',
    "a bracket in a reason alone": '{"judge": "correct", "reason": "as [1] says"}\n{"judge": "incorrect"}',
    "unquoted keys": '[{judge: "correct"}, {judge: "incorrect"}]',
    "comments": '[{"judge": "correct"}, // fine\n{"judge": "incorrect"} // not\n]',
    "smart quotes": "[{“judge”: “correct”}, {“judge”: “incorrect”}]",
    "a trailing comma": '[{"judge": "correct"}, {"judge": "incorrect"},]',
    "null beside it": '[{"judge": "correct", "reason": null}, {"judge": "incorrect"}]',
    "Python's words": "[{'judge': 'correct', 'reason': None}, {'judge': 'incorrect', 'sure': True}]",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_everyday_shape_of_a_reply_is_read_alike(shape: str) -> None:
    assert [one["judge"] for one in read_reply(SHAPES[shape], "[", full)] == ["correct", "incorrect"]


@pytest.mark.parametrize("text", ["nothing", "][", "", "[]", "{}", "[" * 100_000 + "]"])
def test_a_reply_without_json_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_reply(text, "[", full)


def test_nothing_of_a_reply_is_run(tmp_path: Any) -> None:
    marker = tmp_path / "ran"
    read_reply(f"[{{'judge': 'correct', 'reason': open({str(marker)!r}, 'w')}}]", "[", full)
    assert not marker.exists()


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
