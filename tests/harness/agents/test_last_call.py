"""When steps or tool calls run out, the model is asked once more for its answer: within the limits, and traced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillweb.harness.agents.attempt import Limits
from stillweb.harness.agents.openai import OpenAIAgent
from stillweb.harness.results.certificate import certify, make_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.trace import Trace, read_trace
from stillweb.harness.view.export import write_report
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF, bird_task

LIST = "https://shelf.example/list?year=2012&page=1"


def stubborn(asked: Asked) -> Said:
    """Calls a tool for as long as it may."""
    if asked.body.get("tool_choice") == "none":
        return "7|3900\n9|3700"
    return [("fetch", {"url": LIST}), ("fetch", {"url": LIST})]


def deaf(asked: Asked) -> Said:
    return [("fetch", {"url": LIST})]


def run(folder: Path, policy: Any, limits: Limits, **members: Any) -> tuple[RunFiles, Trace, list[Any]]:
    folder.mkdir(exist_ok=True)
    with Endpoint(policy) as endpoint:
        path = folder / "model.yaml"
        path.write_text(
            yaml.safe_dump({"agent": "openai", "model": "m", "base_url": endpoint.url, **members})
        )
        settings = Settings(agent=str(path), contracts=(SHELF,), limits=limits)
        files = start_run(folder / "run", settings, [bird_task("one")])
        run_attempts(files.path, display=SilentDisplay())
    return files, read_trace(files.trace_path("one", 1)), endpoint.requests


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def end(trace: Trace) -> tuple[str, str]:
    answer, score = trace.last("answer"), trace.last("score")
    assert answer is not None
    assert score is not None
    return answer["end"], score["status"]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("limits", "calls", "why"),
    [
        (Limits(steps=3), 4, "last call: the limit of 3 steps is used up"),
        (Limits(calls=3), 3, "last call: the limit of 3 calls is used up"),
        (Limits(steps=1), 0, "last call: the limit of 1 steps is used up"),
    ],
)
def test_the_last_call_asks_for_the_answer(
    tmp_path: Path, api: str, limits: Limits, calls: int, why: str
) -> None:
    files, trace, requests = run(tmp_path, stubborn, limits, api=api, last_call=True)
    assert end(trace) == ("answered", "scored")
    assert len(trace.of("tool_call")) == calls
    assert [event["text"] for event in trace.of("evidence")] == [why]
    assert len(trace.of("model")) == len(requests) <= (limits.steps or 99)
    said = trace.of("model")[-1]["request"]["new"][-1]
    assert said["role"] == "user"
    assert said["content"].startswith("No further tool call is possible.")
    assert all("tool_choice" not in request for request in requests[:-1])
    assert requests[-1]["tools"]
    assert certify(files.path, times=1).holds


def test_without_the_option_the_limit_ends_the_attempt(tmp_path: Path) -> None:
    _, trace, requests = run(tmp_path, stubborn, Limits(steps=3))
    assert end(trace) == ("steps", "zero")
    assert "tool_choice" not in json.dumps(requests)


def test_a_model_that_asks_for_a_tool_all_the_same_has_no_answer(tmp_path: Path) -> None:
    _, trace, _ = run(tmp_path, deaf, Limits(steps=2), last_call="Now!")
    assert end(trace) == ("steps", "zero")
    assert trace.of("model")[-1]["request"]["new"][-1]["content"] == "Now!"


def test_the_words_of_the_last_call_are_part_of_the_agents_identity() -> None:
    plain, asked, other = (
        OpenAIAgent.from_options({"model": "m", "last_call": value}, "a.yaml").identity()["prompts"]
        for value in (False, True, "Now!")
    )
    assert len({plain, asked, other}) == 3
    assert plain == OpenAIAgent.from_options({"model": "m"}, "a.yaml").identity()["prompts"]


def test_answers_cut_off_by_the_limit_of_tokens_are_told(tmp_path: Path) -> None:
    cut, _, _ = run(tmp_path / "cut", lambda _: "7|39", Limits(), params={"max_tokens": 2})
    whole, _, _ = run(tmp_path / "whole", lambda _: "7|3900", Limits())
    told = "1 answer of the model cut off by the token limit"
    assert make_certificate(cut.path)["scores"]["cut_off"] == 1
    assert told in write_report(cut.path).read_text("utf-8")
    assert "cut_off" not in make_certificate(whole.path)["scores"]
    assert told not in write_report(whole.path).read_text("utf-8")
