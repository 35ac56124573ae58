"""The examples of docs/tasks.md, of other pages on the harness and in examples/ work."""

import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillweb.harness.benchmarks.sgi.common import DEFAULTS
from stillweb.harness.curation.lint import lint
from stillweb.harness.datasets import load_tasks
from stillweb.harness.pytest_plugin import _MEMBERS
from stillweb.harness.results.certificate import make_certificate
from stillweb.harness.rubric import compile_rubrics
from stillweb.harness.scoring import METRICS, SCORERS, Context, register, score
from stillweb.harness.scoring.judging import Evaluator, rescore
from stillweb.harness.testing.shared_snapshots import MODES
from stillweb.harness.trace import _schema, read_trace
from tests.harness.scoring.standins import Answers, Words
from tests.support.runs import make_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text("utf-8")
EXAMPLES = ROOT / "examples"
SETS = sorted(p for p in EXAMPLES.rglob("*.jsonl") if "regression" not in p.parts)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found
    return found[1]


def test_the_example_set_of_the_page_loads_and_scores(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(block("json"), "utf-8")
    tasks = load_tasks(path)
    assert not tasks.problems
    assert [task.scorer for task in tasks] == ["exact", "table", "page"]
    assert score(tasks.by_id("office"), "quay alpha").metrics["exact"] == 1
    assert score(tasks.by_id("fleet"), "F-07|12.50 min\nF-02|14").metrics["em"] == 1
    assert score(tasks.by_id("booked"), None, Context(page=lambda expression: True)).metrics["page"] == 1


def test_the_example_scorer_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_scorers_of_the_page.py").write_text(block("python"), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"id": "1", "question": "?", "scorer": "my_scorers_of_the_page:shout"}), "utf-8"
    )
    (task,) = load_tasks(path)
    assert score(task, "LOUD").metrics == {"shouted": 1}
    assert score(task, None).status == "zero"
    monkeypatch.setitem(SCORERS, "shout", "")
    monkeypatch.setitem(METRICS, "shout", ())
    register("shout", sys.modules["my_scorers_of_the_page"].shout, ["shouted"])
    assert "shouted" in METRICS["shout"]


def test_every_variable_of_the_page_is_read_and_the_reverse() -> None:
    rows = re.findall(r"`(SGI_[A-Z_]+)(?:1\.\.3)?`", PAGE)
    said = {name + "1" if name == "SGI_JUDGE_MODEL_" else name for name in rows}
    known = {name for name in DEFAULTS if not name.startswith("SGI_JUDGE_MODEL_")} | {"SGI_JUDGE_MODEL_1"}
    assert known <= said


def reference(task: Any) -> str:
    """An answer that a perfect agent would give."""
    value = task.reference
    if task.scorer == "sgi-deep-research":
        return f"<answer>{value['answer']}</answer>"
    if task.scorer == "sgi-wet-experiment":
        return f"<answer>{value['answer']}</answer>"
    if task.scorer == "sgi-idea-generation":
        return json.dumps(
            {
                "Idea": value["core_idea"],
                "ImplementationSteps": value["implementation_steps"],
                "ImplementationOrder": value["implementation_order"],
                "EvaluationMetrics": value["evaluation_metrics"],
                "Data": value["data"],
                "ExpectedOutcome": value["expected_outcome"],
            }
        )
    return str(value)


def judge(prompt: str, model: str) -> str:
    if "Win A" in prompt:
        return "\n".join(
            f"{n}: Win B because"
            for n in ["Effectiveness", "Novelty", "Detailedness", "Feasibility", "Overall"]
        )
    if "solution_step" in prompt:
        return '[{"judge": "correct"}, {"judge": "correct"}]'
    if "extracted_final_answer" in prompt:
        return "correct: yes"
    return "0.9409"


@pytest.mark.parametrize("path", SETS, ids=lambda p: p.stem)
def test_every_example_loads_and_its_reference_is_right(path: Path) -> None:
    tasks = load_tasks(path)
    assert not tasks.problems
    assert len(tasks)
    context = Context(judge=Answers(judge), embedder=Words(), env={"GRADER_MODEL": "grader"}, mode="fixed")
    for task in tasks:
        if task.scorer in ("page", "sgi-dry-experiment") or ":" in task.scorer:
            continue
        answer = task.reference[0] if isinstance(task.reference, list) else reference(task)
        got = score(task, answer, context)
        assert got.status == "scored", got.detail
        if task.scorer == "sgi-idea-generation":
            assert got.detail["objective"]["feasibility"] == pytest.approx(10)
        else:
            assert next(iter(got.metrics.values())) == 1, got.to_json()


def test_the_example_rubric_compiles_without_a_finding() -> None:
    tasks = list(load_tasks(EXAMPLES / "sgr" / "data"))
    assert {task.base for task in tasks} == {"ferries_001", "ferries_002"}
    assert [str(finding) for finding in lint(tasks, compile_rubrics(tasks))] == []


def test_the_example_scorer_file_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    task = load_tasks(EXAMPLES / "own" / "tasks.jsonl").by_id("haiku")
    assert score(task, "a ferry leaves\nthe quay is quiet again\nropes dry in the sun").metrics == {
        "lines": 1,
        "ferry": 1,
    }


DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_trace_reads_scores_and_hashes_as_the_document_says(tmp_path):
    text = (DOCS / "trace.md").read_text()
    example = re.search(r"```jsonl\n(.*?)```", text, re.DOTALL)[1]
    path = tmp_path / "example.jsonl"
    path.write_text(example)
    trace = read_trace(path)
    assert f"`{trace.hash}`" in text
    assert rescore(trace, Evaluator()) == [trace.header, *trace.events]
    assert trace.last("score")["metrics"] == {"exact": 1.0}


def test_every_event_and_every_end_is_described():
    text = (DOCS / "trace.md").read_text()
    described = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert described == set(_schema()["$defs"]) - {"places"}
    for end in _schema()["$defs"]["answer"]["properties"]["end"]["enum"]:
        assert f"`{end}`" in text


def test_every_member_of_a_certificate_is_described(tmp_path):
    certificate = make_certificate(make_run(tmp_path, ["right"]).path)
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "certificate.md").read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert described == set(certificate)
    json.dumps(certificate)


def test_every_mode_and_fixture_of_the_plugin_is_described():
    import stillweb.harness.pytest_plugin as plugin

    text = (DOCS / "pytest.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(MODES) | {
        name for name in dir(plugin) if name.startswith("stillweb")
    }
    for member in _MEMBERS - {"upstream_ca"}:
        assert f"{member}=" in text or f"`{member}`" in text


def test_every_member_of_a_program_s_file_is_described():
    from stillweb.harness.agents.command import CommandAgent

    page = (DOCS / "runs.md").read_text()
    members = next(
        found for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if (found := yaml.safe_load(block))["agent"] == "command"
    )  # fmt: skip
    agent = CommandAgent.from_options({n: m for n, m in members.items() if n != "agent"}, "runs.md")
    assert set(members) == {"agent", *(field.name for field in fields(agent))} - {"name"}


def test_the_script_of_the_page_is_played_and_every_filter_is_named(tmp_path):
    from stillweb.harness.agents.script import _FILTERS

    page = (DOCS / "runs.md").read_text()
    script = next(
        found for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if (found := yaml.safe_load(block))["agent"] == "script"
    )  # fmt: skip
    files = make_run(tmp_path, ["birds_001", "other"], script=script)
    answers = [
        read_trace(files.trace_path(name, 1)).last("answer")["text"] for name in ("birds_001", "other")
    ]
    assert answers == ["7|3,900\n9|3700", "NONE"]
    table = page.partition("| filter |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)", table)) == set(_FILTERS)


def test_every_member_of_a_model_s_file_and_every_option_of_a_run_that_limits_is_described():
    from stillweb.harness.agents.openai import OpenAIAgent
    from stillweb.harness.commands.run import command
    from stillweb.harness.commands.score import command as scoring

    page = (DOCS / "runs.md").read_text()
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    members = yaml.safe_load(block)
    assert set(members) == {"agent", *(one.name for one in fields(OpenAIAgent) if one.init)}
    OpenAIAgent.from_options({name: value for name, value in members.items() if name != "agent"}, "runs.md")
    options = {word for option in command.params for word in option.opts if word.startswith("--")}
    again = {word for option in scoring.params for word in option.opts}
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= options | again
    assert {"--max-steps", "--max-calls", "--max-tokens", "--max-cost", "--timeout", "--prices"} <= options
