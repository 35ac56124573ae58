"""Agents of one's own may raise whatever there is: it is the end of their attempt, and of nothing else."""

import json
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import stillweb
from stillweb.harness.agents import module
from stillweb.harness.agents.attempt import Limits
from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import LocalEngine
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.support.runs import SHELF, write_script
from tests.support.waiting import HANG, until

RAISING = "tests.support.raising_agents:Raising"


def begun(folder: Path, *names: str, limits: Limits | None = None) -> RunFiles:
    """A run of these ways to end, of which nothing is made yet."""
    settings = Settings(agent=RAISING, contracts=(SHELF,), limits=limits or Limits())
    return start_run(folder / "run", settings, [Task(name, "Which?", "7") for name in names])


def ends(files: RunFiles) -> dict[str, tuple[str, str]]:
    """Makes the run; how its attempts ended, and with what error."""
    run_attempts(files.path, display=SilentDisplay())
    answers = {
        task.id: read_trace(files.trace_path(task.id, 1)).last("answer") or {} for task in files.tasks()
    }
    return {name: (answer["end"], answer.get("error", "")) for name, answer in answers.items()}


@pytest.mark.slow
def test_what_is_no_exception_ends_the_attempt_and_not_the_run(tmp_path: Path) -> None:
    names = ("exits", "exits_in_a_thread", "exits_in_a_task", "is_cancelled", "odd", "answers")
    assert ends(begun(tmp_path, *names)) == {
        "exits": ("error", "SystemExit: 0"),
        "exits_in_a_thread": ("error", "SystemExit: 0"),
        "exits_in_a_task": ("error", "SystemExit: 0"),
        "is_cancelled": ("error", "CancelledError: "),
        "odd": ("error", "Odd: of its own"),
        "answers": ("answered", ""),
    }


@pytest.mark.parametrize("name", ["exits", "exits_in_a_task"])
def test_an_agent_that_exits_leaves_no_run_that_looks_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        "".join(json.dumps({"id": one, "question": "?", "answer": "7"}) + "\n" for one in (name, "answers"))
    )
    assert call(capsys, "run", "--tasks", tasks, "--agent", RAISING, "-o", tmp_path / "run")[0] == 1


def test_a_limit_that_strikes_in_a_task_is_the_end(tmp_path: Path) -> None:
    found = ends(begun(tmp_path, "calls_at_once", limits=Limits(calls=1)))
    assert found == {"calls_at_once": ("calls", "the limit of 1 calls is used up")}


@pytest.mark.parametrize("name", ["has_no_browser", "has_no_browser_in_a_task"])
def test_what_the_machine_lacks_is_scored_for_no_agent_that_hides_it(tmp_path: Path, name: str) -> None:
    files = begun(tmp_path, name)
    with pytest.raises(MissingCapability, match="no browser"):
        run_attempts(files.path, display=SilentDisplay())
    assert not files.trace_path(name, 1).exists()


def test_what_an_agent_leaves_at_work_has_no_part_in_its_trace(tmp_path: Path) -> None:
    files = begun(tmp_path, "leaves_a_task")
    assert ends(files) == {"leaves_a_task": ("answered", "")}
    assert len(read_trace(files.trace_path("leaves_a_task", 1)).of("tool_call")) <= 1


@pytest.mark.slow
def test_an_agent_that_holds_its_loop_is_ended_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    names = ("holds", "holds_again", "holds_in_a_thread")
    began = time.monotonic()
    found = ends(begun(tmp_path, *names, "answers", limits=Limits(seconds=1)))
    over = ("seconds", "the limit of 1 seconds is used up")
    assert found == {**dict.fromkeys(names, over), "answers": ("answered", "")}
    assert time.monotonic() - began < HANG


def test_ctrl_c_ends_the_run_of_an_agent_that_hears_nothing_of_it(tmp_path: Path) -> None:
    files = begun(tmp_path, "holds_again", "answers")
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a command called here may have left none
    pressing = threading.Thread(target=_press_ctrl_c, args=(files,))
    pressing.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_attempts(files.path, display=SilentDisplay(), engine=LocalEngine(1))
    finally:
        pressing.join()
        signal.signal(signal.SIGINT, before)
    assert [path.suffix for path in files.traces.iterdir()] == [".part"]


def _press_ctrl_c(files: RunFiles) -> None:
    """Send SIGINT to this process once the run's first attempt has called its tool."""
    assert until(lambda: any(b"tool_call" in path.read_bytes() for path in files.traces.glob("*.part")))
    os.kill(os.getpid(), signal.SIGINT)


PAGE = (
    b"<!DOCTYPE html><html><title>Birds</title><body><h1>Kestrel</h1><p>200 g</p>"
    b"""<button onclick="document.title = 'Fish'">Fish</button></body></html>"""
)
URL = "http://shelf.example/birds"


@pytest.fixture
def site(tmp_path):
    with Writer.open(tmp_path / "site") as writer:
        request = Request("GET", URL, (("Host", "shelf.example"),))
        headers = (("Content-Type", "text/html"), ("Content-Length", str(len(PAGE))))
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        writer.exchange(Exchange(request, 200, "OK", headers, PAGE, moment, begin=1, end=2))
    return tmp_path / "site"


# How an agent may make the scored expression true, and what of that counts.
FORGED = {
    "a page of its own": (0, [("browser_navigate", {"url": "data:text/html,<title>Fish</title>"})]),
    "a page in a tab of its own": (0, [("browser_tabs", {"action": "new", "url": " DATA:text/html,<title>Fish</title>"})]),
    "a changed page": (0, [("browser_evaluate", {"function": "() => document.title = 'Fish'"})]),
    "a changed page, later": (0, [("browser_evaluate", {"function": "() => setTimeout(() => document.title = 'Fish', 900)"})]),
    "changed JSON": (0, [("browser_evaluate", {"function": "() => { JSON.stringify = () => 'true'; }"})]),
    "its own act, and a look at it": (
        1,
        [
            ("browser_click", {"target": "button"}),
            ("browser_evaluate", {"function": "() => document.title"}),
        ],
    ),
}  # fmt: skip


@pytest.mark.slow
def test_what_an_agent_wrote_into_its_browser_does_not_count(tmp_path, site):
    tasks = {
        name: {"steps": [{"call": "browser_navigate", "with": {"url": URL}}, *({"call": tool, "with": given} for tool, given in calls)], "answer": "done"}
        for name, (_, calls) in FORGED.items()
    }  # fmt: skip
    options = {"expression": "document.title === 'Fish'"}
    agent = write_script(tmp_path, {"default": {"steps": [], "answer": ""}, "tasks": tasks})
    settings = Settings(agent=agent, snapshots=(str(site),), contracts=("playwright-mcp",))
    files = start_run(tmp_path / "run", settings, [Task(name, "?", None, "page", options=options) for name in FORGED])  # fmt: skip
    run_attempts(files.path, display=SilentDisplay())
    traces = {name: read_trace(files.trace_path(name, 1)) for name in FORGED}
    assert {name: trace.last("score")["metrics"]["page"] for name, trace in traces.items()} == {
        name: right for name, (right, _) in FORGED.items()
    }
    assert all("its other calls" in trace.of("evidence")[0]["text"] for trace in traces.values())
    assert certify(files.path, times=1).differences == ()
    task = Task("one", "?", None, "page", options=options)
    with stillweb.env(site, task, contracts=["playwright-mcp"]) as world:
        world.reset()
        world.step({"tool": "browser_navigate", "arguments": {"url": URL}})
        world.step({"tool": "browser_evaluate", "arguments": {"function": "() => document.title = 'Fish'"}})
        assert world.step({"answer": "done"}).reward == 0


@pytest.mark.slow
def test_an_expression_is_evaluated_in_the_final_page_and_kept_in_the_trace(tmp_path, site):
    script = {"default": {"steps": [{"call": "browser_navigate", "with": {"url": URL}}], "answer": "done"}}
    settings = Settings(
        agent=write_script(tmp_path, script),
        snapshots=(str(site),),
        contracts=("playwright-mcp",),
    )
    tasks = [
        Task(
            "right",
            "Open it.",
            "Kestrel",
            "page",
            options={"expression": "document.querySelector('h1').textContent"},
        ),
        Task("wrong", "Open it.", None, "page", options={"expression": "document.title === 'Fish'"}),
    ]
    files = start_run(tmp_path / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    traces = {name: read_trace(files.trace_path(name, 1)) for name in ("right", "wrong")}
    assert traces["right"].last("evidence")["value"] == "Kestrel"
    assert {name: trace.last("score")["metrics"]["page"] for name, trace in traces.items()} == {
        "right": 1.0,
        "wrong": 0.0,
    }
    assert traces["right"].of("state")[0]["url"] == URL
    assert score_run(files.path) == []
    assert certify(files.path, times=1).differences == ()
