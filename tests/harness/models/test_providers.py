"""Anthropic's and Gemini's models by their own SDKs: taped alike, streamed or not, with thoughts and tools."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillweb.harness.agents import load_agent
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import LocalEngine
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.support import openai_endpoint
from tests.support.openai_endpoint import KEY, Asked, Endpoint, Said, message_answer
from tests.support.runs import SHELF, bird_task

LIST = "https://shelf.example/list?year=2012&page=1"
KINDS = ("anthropic", "gemini")


def birds(asked: Asked) -> Said:
    if not asked.tool_answers:
        return [("fetch", {"url": LIST}), ("fetch", {"url": "https://shelf.example/other"})]
    return "7|3900\n9|3700"


@pytest.fixture(params=[(kind, stream) for kind in KINDS for stream in (False, True)], ids=str)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    kind, stream = request.param
    monkeypatch.setenv(f"{kind.upper()}_API_KEY", KEY)
    return kind, stream


def agent(folder: Path, kind: str, url: str, **members: Any) -> str:
    path = folder / "model.yaml"
    settings = {"agent": kind, "model": "birder", "base_url": url.removesuffix("/v1"), "tries": 2, **members}
    path.write_text(yaml.safe_dump(settings))
    return str(path)


def run(folder: Path, spec: str, names: tuple[str, ...] = ("one",), **settings: Any) -> RunFiles:
    prices = {"birder": {"input": 1.0, "output": 2.0}}
    files = start_run(
        folder / "run",
        Settings(agent=spec, contracts=(SHELF,), prices=prices, **settings),
        [bird_task(name) for name in names],
    )
    run_attempts(files.path, display=SilentDisplay(), engine=LocalEngine(1))
    return files


@pytest.mark.slow
def test_a_run_is_taped_and_repeats_without_key_or_endpoint(
    provider: tuple[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, stream = provider
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent(tmp_path, kind, endpoint.url, stream=stream))
    trace = read_trace(files.trace_path("one", 1))
    assert (trace.last("answer") or {})["text"] == "7|3900\n9|3700", trace.last("answer")
    assert [event["arguments"] for event in trace.of("tool_call")] == [
        {"url": LIST},
        {"url": "https://shelf.example/other"},
    ]
    first, second = trace.of("model")
    assert first["reply"]["reasoning"] == "let me think"
    assert (first["usage"]["input"] > 0, first["cost"] > 0) == (True, True)
    assert second["served"].startswith("birder-")
    sent = json.dumps(endpoint.requests[1])
    assert "c2ln" in sent, "the signature goes back with its thought"
    assert "let me think" in sent
    assert '"tool_result"' in sent or '"functionResponse"' in sent
    assert KEY not in b"".join(
        p.read_bytes() for p in (files.path / "tape").rglob("*") if p.is_file()
    ).decode("latin-1")
    monkeypatch.delenv(f"{kind.upper()}_API_KEY")
    write_certificate(files.path)
    assert score_run(files.path) == []
    outcome = certify(files.path, times=1)
    assert outcome.holds, outcome.differences


@pytest.mark.slow
def test_what_is_no_answer_is_an_error_and_is_again(provider: tuple[str, bool], tmp_path: Path) -> None:
    kind, stream = provider
    faults: list[int | str] = ["half", 500, "nonsense", "html", "empty"]
    with Endpoint(birds, faults=[fault for fault in faults for _ in range(2)]) as endpoint:
        spec = agent(tmp_path, kind, endpoint.url, stream=stream)
        files = run(tmp_path, spec, names=tuple(map(str, faults)))
    assert len(endpoint.requests) == 2 * len(faults)  # tries
    for fault in faults:
        answer = read_trace(files.trace_path(str(fault), 1)).last("answer") or {}
        assert answer["end"] == "error", (fault, answer)
        assert "tried 2 times" in answer["error"]
    if stream:  # that broke while it was recorded, it breaks in the repetition
        outcome = certify(files.path, times=1)
        assert outcome.holds, outcome.differences


@pytest.mark.slow
def test_a_fault_is_got_over(provider: tuple[str, bool], tmp_path: Path) -> None:
    kind, stream = provider
    with Endpoint(birds, faults=[429, "half"]) as endpoint:
        files = run(tmp_path, agent(tmp_path, kind, endpoint.url, stream=stream, tries=3))
    assert summarise(files.path).means["em"].mean == 1.0


@pytest.mark.slow
def test_the_last_call_may_call_no_tool(provider: tuple[str, bool], tmp_path: Path) -> None:
    from stillweb.harness.agents.attempt import Limits

    kind, stream = provider

    def greedy(asked: Asked) -> Said:
        return (
            "7|3900"
            if "NONE" in json.dumps(asked.body) or '"none"' in json.dumps(asked.body)
            else birds_always
        )

    birds_always: Said = [("fetch", {"url": LIST})]
    with Endpoint(greedy) as endpoint:
        spec = agent(tmp_path, kind, endpoint.url, stream=stream, last_call=True)
        files = run(tmp_path, spec, limits=Limits(steps=2))
    assert (read_trace(files.trace_path("one", 1)).last("answer") or {})["text"] == "7|3900"


def test_a_tool_call_that_the_limit_of_tokens_cut_off_is_counted_and_told_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    def cut(body: dict[str, Any], said: Said) -> tuple[str, bytes]:
        kind, data = message_answer(body, said)
        data = data.replace(rb'=1\"}"', b'=1"').replace(
            b'"stop_reason": "tool_use"', b'"stop_reason": "max_tokens"'
        )
        return kind, data

    def once(asked: Asked) -> Said:
        return "7|3900\n9|3700" if asked.tool_answers else [("fetch", {"url": LIST})]

    monkeypatch.setitem(openai_endpoint._APIS, "/messages", ("messages", cut))
    with Endpoint(once) as endpoint:
        files = run(tmp_path, agent(tmp_path, "anthropic", endpoint.url, stream=True))
    trace = read_trace(files.trace_path("one", 1))
    (call,) = trace.of("tool_call")
    assert call["arguments"].endswith("page=1")
    assert "the arguments are not JSON" in call["output"]["text"]
    assert summarise(files.path).cut_off == 1
    assert summarise(files.path).means["em"].mean == 1.0


def test_a_model_is_named_in_short_and_a_wrong_member_refused(tmp_path: Path) -> None:
    for kind in KINDS:
        made = load_agent(f"{kind}:some-model")
        assert made.identity()["kind"] == kind
        with pytest.raises(UsageError, match="unknown member 'api'"):
            load_agent(agent(tmp_path, kind, "http://x/v1", api="chat"))
