"""Threads that agents leave behind: neither the other attempts nor the process wait for them, and it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.trace import read_trace
from stillweb.harness.view.export import write_report
from tests.support.command_line import stillweb

AGENT = """
import asyncio, threading, time

class Leaving:
    name = "leaving"

    def identity(self):
        return {"kind": "leaving"}

    async def run(self, attempt):
        if attempt.task.id == "begun":
            threading.Thread(target=time.sleep, args=(36000,), name="of-the-agent").start()
        if attempt.task.id.startswith("waits"):
            await asyncio.to_thread(time.sleep, 36000)
        return await asyncio.to_thread(str, "x")
"""
WAITING = [f"waits{number}" for number in range(40)]  # more than the threads of an executor


@pytest.mark.slow
def test_a_thread_that_goes_on_holds_nobody_up(tmp_path: Path) -> None:
    """A loop's executor has few threads: such attempts left none for scorers and others, and the run hung."""
    (tmp_path / "agent_that_leaves.py").write_text(AGENT)
    names = [*WAITING, "begun", "last"]
    scorer = "tests.support.scorers:judged"  # which is called in a thread
    tasks = [{"id": name, "question": "?", "answer": "x", "scorer": scorer} for name in names]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    words = ("--agent", "agent_that_leaves:Leaving", "--timeout", "3", "--parallel", "40", "-o", "run")
    here = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = stillweb("run", "--tasks", "tasks.jsonl", *words, cwd=tmp_path, env=here)
    assert done.code == 0, done.err
    assert "42 attempts: 2 scored, 40 timeout;" in done.out
    assert "41 threads that an agent began still ran (of-the-agent, " in done.said
    trace = read_trace(tmp_path / "run" / "traces" / "waits0.1.jsonl")
    (aside,) = [event["aside"] for event in trace.of("answer")]
    assert any(name.startswith("stillweb-waits0/1_") for name in aside["threads"])
    assert "ran on when its time was over: " in write_report(tmp_path / "run").read_text()


@pytest.mark.slow
def test_a_repetition_does_not_wait_for_it_either(tmp_path: Path) -> None:
    """Nor does what is quicker the second time come to an answer that there was not."""
    quicker = AGENT.replace("asyncio.to_thread(time.sleep, 36000)", "asyncio.sleep(2)")
    (tmp_path / "agent_that_leaves.py").write_text(quicker)
    tasks = [{"id": name, "question": "?", "answer": "x"} for name in ("waits", "begun")]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    words = ("--agent", "agent_that_leaves:Leaving", "--timeout", "1", "-o", "run")
    assert stillweb("run", "--tasks", "tasks.jsonl", *words, cwd=tmp_path).code == 0
    outcome = certify(tmp_path / "run", times=1)
    assert outcome.holds, outcome.differences
