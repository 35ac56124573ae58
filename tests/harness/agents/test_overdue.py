"""Agents of one's own that do not end when their time is over: they are ended, and the others are made."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from stillweb.harness.agents import overdue
from stillweb.harness.agents.attempt import Limits
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import LocalEngine
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.trace import read_trace
from tests.support.runs import SHELF, bird_task
from tests.support.waiting import HANG


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "GRACE", 0.2)


def ends(folder: Path, names: list[str], parallel: int = 1) -> list[str]:
    """How the attempts at tasks with these ids end."""
    settings = Settings(
        agent="tests.support.holding_agents:Holding", contracts=(SHELF,), limits=Limits(seconds=1)
    )
    files = start_run(folder / "run", settings, [bird_task(name) for name in names])
    assert run_attempts(files.path, display=SilentDisplay(), engine=LocalEngine(parallel)) == len(names)
    return [read_trace(files.trace_path(name, 1)).last("answer")["end"] for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["late", "sleeping", "computing", "waiting", "in_a_task", "stubborn", "deaf"])
def test_an_agent_that_does_not_end_is_ended(tmp_path: Path, how: str) -> None:
    begun, heard = time.monotonic(), signal.getsignal(overdue.SIGNAL)
    assert ends(tmp_path, [how, "in_time"]) == ["seconds", "answered"]
    assert time.monotonic() - begun < HANG
    assert signal.getsignal(overdue.SIGNAL) == heard


@pytest.mark.slow
def test_of_those_beside_each_other_each_is_ended(tmp_path: Path) -> None:
    assert ends(tmp_path, ["sleeping", "computing", "in_a_task"], parallel=3) == ["seconds"] * 3
