"""A run forked from a step of another: the tape up to there, then another model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.forking import fork_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Asked, Endpoint, Said
from tests.support.runs import SHELF, bird_task

PAGE = "https://shelf.example/list?year=2012&page={}"


def said(asked: Asked) -> Said:
    """Two calls, then an answer: the first model's is wrong."""
    seen = len(asked.tool_answers)
    if seen < 2:
        return [("fetch", {"url": PAGE.format(seen + 1)})]
    return "7|3900\n9|3700" if asked.body["model"] == "better" else "7|3900"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with Endpoint(said) as one:
        monkeypatch.setenv("OPENAI_BASE_URL", one.url)
        yield one


def first_run(folder: Path, endpoint: Endpoint, agent: str = "openai:plain", **settings: Any) -> RunFiles:
    env = {"OPENAI_BASE_URL": endpoint.url}
    ready = Settings(agent=agent, contracts=(SHELF,), epochs=2, env=env, **settings)
    files = start_run(folder / "first", ready, [bird_task("birds.of"), bird_task("birds")])
    run_attempts(files.path, display=SilentDisplay())
    write_certificate(files.path)
    return files


def agent_file(folder: Path, **members: Any) -> str:
    path = folder / "agent.yaml"
    path.write_text(json.dumps({"agent": "openai", "model": "plain", **members}))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("members", [{}, {"stream": True}, {"api": "responses"}, {"last_call": True}])
def test_another_model_goes_on_from_a_step(
    tmp_path: Path, endpoint: Endpoint, members: dict[str, Any]
) -> None:
    first = first_run(tmp_path, endpoint, agent_file(tmp_path, **members))
    endpoint.requests.clear()
    fork = fork_run(first.path, "birds.2", tmp_path / "fork", step=2, model="better")
    assert run_attempts(fork.path, display=SilentDisplay()) == 1
    trace = read_trace(fork.trace_path("birds", 1))
    assert [event["model"] for event in trace.of("model")] == ["plain", "better", "better"]
    assert [asked["model"] for asked in endpoint.requests] == ["better", "better"]
    before = read_trace(first.trace_path("birds", 2))
    assert trace.of("model")[0]["reply"] == before.of("model")[0]["reply"]
    assert (before.last("score") or {})["metrics"]["em"] == 0
    assert (trace.last("score") or {})["metrics"]["em"] == 1
    certificate = write_certificate(fork.path)
    assert certificate["settings"]["fork"] == {
        "certificate": write_certificate(first.path)["hash"],
        "task": "birds",
        "attempt": 2,
        "step": 2,
        "model": "better",
    }
    assert (certificate["models"], certificate["agent"]["model"]) == (["better", "plain"], "plain")
    endpoint.requests.clear()
    outcome = certify(fork.path, times=1)
    assert (outcome.differences, endpoint.requests) == ((), [])


def test_the_command_forks_goes_on_and_tells_what_the_run_came_from(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_run(tmp_path, endpoint)
    arguments = ("fork", first.path, "birds.of/1", "--step", 3, "--model", "better", "-o", tmp_path / "fork")
    endpoint.faults = [401]
    assert call(capsys, *arguments)[0] == 1  # the endpoint refused the other model
    endpoint.requests.clear()
    code, out = call(capsys, *arguments, "--retry-failed")
    assert code == 0
    assert [asked["model"] for asked in endpoint.requests] == ["better"]
    assert "forked from attempt 1 at birds.of of the run " in out.replace("Forked", "forked")
    assert "better went on from step 3" in out
    other = tuple("worse" if one == "better" else one for one in arguments)
    assert call(capsys, *other)[0] == 2  # the directory holds another fork
    code, out = call(capsys, "compare", first.path, tmp_path / "fork")
    assert "fork" in out


def test_a_first_step_takes_over_nothing(tmp_path: Path, endpoint: Endpoint) -> None:
    first = first_run(tmp_path, endpoint)
    fork = fork_run(first.path, "birds", tmp_path / "fork", step=1, model="better")
    run_attempts(fork.path, display=SilentDisplay())
    trace = read_trace(fork.trace_path("birds", 1))
    assert [event["model"] for event in trace.of("model")] == ["better"] * 3


def test_what_is_taken_over_is_never_asked_for(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that answers otherwise by now changes the requests: the attempt fails, and no model is paid."""
    first = first_run(tmp_path, endpoint)
    endpoint.requests.clear()
    monkeypatch.setitem(
        __import__("tests.support.shelf_tools", fromlist=["PAGES"]).PAGES, PAGE.format(1), "else"
    )
    fork = fork_run(first.path, "birds.1", tmp_path / "fork", step=3, model="better")
    run_attempts(fork.path, display=SilentDisplay())
    answer = read_trace(fork.trace_path("birds", 1)).last("answer") or {}
    assert answer["end"] == "error"
    assert "is not on the tape" in answer["error"]
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("attempt", "step", "settings", "why"),
    [
        ("birds.1", 4, {}, "attempt birds.1 made 3 model calls. Give a --step of 1 to 3"),
        ("birds.3", 1, {}, "attempt birds.3 is not finished"),
        ("bird.1", 1, {}, "has no attempt 'bird.1'"),
        ("birds.1", 2, {"tape": "none"}, "there is no tape to replay"),
        ("birds.1", 2, {"agent": "script"}, "its agent chooses its model itself"),
    ],
)
def test_what_can_not_be_forked_is_refused(
    tmp_path: Path, endpoint: Endpoint, attempt: str, step: int, settings: dict[str, Any], why: str
) -> None:
    if settings.get("agent"):
        path = tmp_path / "script.yaml"
        path.write_text('{"agent": "script", "default": {"steps": [], "answer": "7"}}')
        settings = {"agent": str(path)}
    first = first_run(tmp_path, endpoint, **settings)
    with pytest.raises(UsageError, match=why):
        fork_run(first.path, attempt, tmp_path / "fork", step=step, model="better")
