"""The class of docs/runs.md works as it stands: tools and models, traced, taped, repeated without an endpoint."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.agents.attempt import Attempt, LimitReached, Limits
from stillweb.harness.models.client import Reply, Usage
from stillweb.harness.models.tape import CallInProgress
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import TraceWriter, read_trace
from stillweb.snapshots.errors import UsageError
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF

DOCS = Path(__file__).parents[3] / "docs" / "runs.md"
PAGE = "https://shelf.example/list?year=2012&page=1"
TWICE = """
class Twice:
    name = "twice"
    def identity(self): return {"kind": "twice"}
    def model_options(self, env): return {"base_url": env["OPENAI_BASE_URL"], "key_variable": "OPENAI_API_KEY"}
    async def run(self, attempt):
        said = [{"role": "user", "content": "one"}]
        reply = await attempt.ask({"model": "m", "messages": said})
        said += [*reply.items, {"role": "user", "content": "two"}]
        return (await attempt.ask({"model": "m", "messages": said})).text
"""
SHORTENS = """
from twice import Twice
class Shortens(Twice):
    async def run(self, attempt):
        said = [{"role": "user", "content": "a long page"}]
        reply = await attempt.ask({"model": "m", "messages": said})
        said[0]["content"] = "(left out)"
        said += [*reply.items, {"role": "user", "content": "two"}]
        return (await attempt.ask({"model": "m", "messages": said})).text
"""
PLAIN = """
import os
class Tupled:
    name = "tupled"
    def identity(self): return {"kind": "tupled", "tools": ("a", "b"), "layers": {1: "x"}}
    async def run(self, attempt): return "7"
class Unnamed(Tupled):
    def identity(self): return {"kind": {"a", "b"}}
class Goes(Tupled):
    async def run(self, attempt):
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        return "7"
"""
AT_ONCE = """
import asyncio
class AtOnce:
    name = "at-once"
    def identity(self): return {"kind": "at-once"}
    def model_options(self, env): return {"base_url": env["OPENAI_BASE_URL"], "key_variable": "OPENAI_API_KEY"}
    async def run(self, attempt):
        said = [{"model": "m", "messages": [{"role": "user", "content": str(n)}]} for n in range(9)]
        await asyncio.gather(*map(attempt.ask, said), return_exceptions=True)
        return "7"
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "reader.py").write_text(code, encoding="utf-8")
    (tmp_path / "twice.py").write_text(TWICE, encoding="utf-8")
    (tmp_path / "at_once.py").write_text(AT_ONCE, encoding="utf-8")
    (tmp_path / "shortens.py").write_text(SHORTENS, encoding="utf-8")
    (tmp_path / "plain.py").write_text(PLAIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the processes of a repetition
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")


def run(folder: Path, agent: str, answer: Said, limits: Limits | None = None) -> RunFiles:
    """A run of one task with the agent; the endpoint says the answer, and is gone when it returns."""

    def say(asked: Asked) -> Said:
        return answer

    with Endpoint(say) as endpoint:
        settings = Settings(
            agent=agent, contracts=(SHELF,), env={"OPENAI_BASE_URL": endpoint.url}, tape="auto", limits=limits or Limits()
        )  # fmt: skip
        files = start_run(folder / "run", settings, [Task("a", "Which?", "7", start_url=PAGE)])
        run_attempts(files.path)
    return files


@pytest.mark.slow
def test_the_example_runs_and_repeats_without_its_endpoint(tmp_path: Path) -> None:
    files = run(tmp_path, "reader:Reader", "7")
    assert summarise(files.path).statuses["scored"] == 1
    trace = read_trace(files.trace_path("a", 1))
    assert [event["event"] for event in trace.events] == ["tool_call", "state", "model", "answer", "score"]
    assert trace.events[2]["reply"]["text"] == "7"
    assert certify(files.path, times=1).holds


@pytest.mark.slow
def test_a_conversation_is_traced_without_what_is_there_already(tmp_path: Path) -> None:
    trace = read_trace(run(tmp_path, "twice:Twice", "7").trace_path("a", 1))
    first, second = (event["request"] for event in trace.events if event["event"] == "model")
    assert (first["messages"], [one["content"] for one in first["new"]]) == (1, ["one"])
    assert (second["messages"], [one["content"] for one in second["new"]]) == (3, ["two"])


@pytest.mark.slow
def test_messages_that_were_changed_since_are_traced_again(tmp_path: Path) -> None:
    trace = read_trace(run(tmp_path, "shortens:Shortens", "7").trace_path("a", 1))
    second = trace.of("model")[1]["request"]["new"]
    assert [one["content"] for one in second] == ["(left out)", "7", "two"]


@pytest.mark.slow
def test_a_limit_of_steps_holds(tmp_path: Path) -> None:
    answer = read_trace(run(tmp_path, "twice:Twice", "7", Limits(steps=1)).trace_path("a", 1)).last("answer")
    assert answer is not None
    assert answer["end"] == "steps"


@pytest.mark.slow
def test_a_limit_of_steps_holds_for_calls_made_at_once(tmp_path: Path) -> None:
    trace = read_trace(run(tmp_path, "at_once:AtOnce", "7", Limits(steps=3)).trace_path("a", 1))
    assert len(trace.of("model")) == 3


def test_an_identity_that_files_hold_otherwise_goes_on(tmp_path: Path) -> None:
    files = run(tmp_path, "plain:Tupled", "7")
    write_certificate(files.path)
    files.trace_path("a", 1).unlink()
    start_run(files.path, files.manifest()[0], files.tasks())
    assert run_attempts(files.path) == 1
    assert write_certificate(files.path)["agent"] == {
        "kind": "tupled",
        "tools": ["a", "b"],
        "layers": {"1": "x"},
        "files": {"plain.py": sha256(PLAIN.encode()).hexdigest()},
    }


def test_the_certificate_says_that_the_agent_was_confined(tmp_path: Path) -> None:
    confined = write_certificate(run(tmp_path, "plain:Tupled", "7").path)["confinement"]["agent"]
    assert {"namespaces", "system calls"} <= set(confined["held"])
    assert confined["missing"] == []


def test_an_agent_whose_file_was_edited_does_not_go_on(tmp_path: Path) -> None:
    """A run would hold attempts of two agents under one name."""
    tasks = [Task(name, "Which?", "7") for name in ("a", "b")]
    files = start_run(tmp_path / "run", Settings(agent="plain:Tupled", contracts=(SHELF,)), tasks)
    run_attempts(files.path)
    files.trace_path("a", 1).unlink()
    (tmp_path / "plain.py").write_text(PLAIN.replace('"7"', '"another answer"'), encoding="utf-8")
    with pytest.raises(UsageError, match="agent is not what it was when this run began"):
        start_run(files.path, files.manifest()[0], files.tasks())


def test_an_identity_that_no_file_can_hold_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"agent tupled: its identity is not JSON: .*set"):
        run(tmp_path, "plain:Unnamed", "7")


@pytest.mark.slow
def test_an_agent_that_goes_elsewhere_leaves_the_run_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(agent="plain:Goes", contracts=(SHELF,))
    tasks = [Task(name, "Which?", "7") for name in ("a", "b", "c")]
    files = start_run(Path("run"), settings, tasks)
    assert run_attempts(files.path) == 3
    assert summarise(files.path).statuses["scored"] == 3
    assert Path.cwd() == tmp_path


def test_without_a_model_client_it_is_told(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        attempt = Attempt(Task("a", "Which?", "7"), 1, "a/1", None, trace)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"needs `model_options\(env\)`"):
            asyncio.run(attempt.ask({"model": "m", "messages": []}))


def test_an_answer_that_came_while_a_call_was_made_counts_for_its_limits(tmp_path: Path) -> None:
    """As it does in a repetition, where the tape gives the answer before that call."""
    asked: list[str] = []

    class Models:
        def begin(self, session: str) -> CallInProgress:
            return CallInProgress()

        async def chat(self, session: str, body: Mapping[str, Any]) -> Reply:
            asked.append(body["messages"][0]["content"])
            await come.wait()
            return Reply("7", (), (), "stop", Usage(40, 40), "m")

    def ask(text: str) -> Any:
        return attempt.ask({"model": "m", "messages": [{"role": "user", "content": text}]})

    async def both() -> None:
        first = asyncio.create_task(ask("first"))
        while not asked:
            await asyncio.sleep(0)
        come.set()
        with pytest.raises(LimitReached, match="80 tokens"):
            await ask("second")
        await first

    come = asyncio.Event()
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        attempt = Attempt(
            Task("a", "Which?", "7"),
            1,
            "a/1",
            None,
            trace,
            Limits(tokens=80),
            models=Models(),  # type: ignore[arg-type]
        )
        asyncio.run(both())
    assert asked == ["first"]
