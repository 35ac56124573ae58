"""The command agent: when a program is done."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.agents import command
from harness.run_files import Settings
from harness.runner import run_attempts, start_run
from harness.task import Task
from harness.trace import read_trace
from tests.support.waiting import until

LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
open({pid!r}, "w").write(str(child.pid))
print("42")
"""


def test_a_program_that_leaves_a_child_with_its_output_is_done_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on until the limit of seconds, and for ever without one."""
    monkeypatch.setattr(command, "LEFT_SECONDS", 0.1)
    pid = tmp_path / "pid"
    (tmp_path / "agent.py").write_text(LEAVES_A_CHILD.format(pid=str(pid)))
    settings = Settings(agent=f"command:{sys.executable} {tmp_path / 'agent.py'}")
    files = start_run(tmp_path / "run", settings, [Task("a", "?", reference=["42"], scorer="exact")])
    run_attempts(files.path)
    trace = read_trace(files.trace_path("a", 1))
    answer = trace.last("answer")
    assert answer is not None
    assert (answer["text"], answer["end"]) == ("42", "answered")
    assert command.LEFT in [note.get("text") for note in trace.of("evidence")]
    assert until(lambda: ended(int(pid.read_text())))


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only not yet waited for by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
