"""An agent's process that sends Stillweb's what no agent sends ends its attempt, and puts nothing into its trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.sandbox.running import can_confine
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace

pytestmark = pytest.mark.skipif(
    can_confine(limits=None) is not None, reason=f"no confinement here: {can_confine(limits=None)}"
)

# It writes to the socket by which its process asks for tools and models.
FORGER = """
import os, socket, stat
class Forger:
    name = "forger"
    def identity(self): return {"kind": "forger"}
    async def run(self, attempt):
        for name in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(name))) as found:
                    stream = found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM and found.getpeername() == ""
            except OSError:
                continue
            if stream and int(name) > 2:
                socket.socket(fileno=os.dup(int(name))).sendall(DATA)
        return "42?"
"""
SCORE = {"scorer": "exact", "metrics": {"exact": 1.0}, "answer": "42"}


def said(**message: Any) -> bytes:
    return json.dumps(message).encode()


MESSAGES = {
    "no object": b"[1]",
    "deep": b"[" * 20_000 + b"]" * 20_000,
    "a huge number": b"9" * 5000,
    "no text": b"\xff\xfe",
    "no kind": b"{}",
    "members that are none": said(kind="write", event="model", members=None),
    "a score": said(kind="write", event="score", members=SCORE),
    "a score under the name of a note": said(kind="write", event="evidence", members={"kind": "note", "event": "score", **SCORE}),
    "a call that was not made": said(kind="write", event="tool_call", members={"name": "fetch", "arguments": {}}),
    "a score among events in another order": said(kind="rearranged", events=[{"event": "score", "n": 1, **SCORE}]),
    "an answer among them": said(kind="rearranged", events=[{"event": "answer", "n": 1, "text": "42", "error": None}]),
    "other numbers": said(kind="rearranged", events=[{"event": "evidence", "n": 7, "kind": "note", "text": "x"}]),
    "an end that is none": said(kind="played", lacking=None, played=["42", "won", None], given_up=0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_what_no_agent_sends_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = f"forger_{list(MESSAGES).index(name)}"
    (tmp_path / f"{module}.py").write_text(f"DATA = {MESSAGES[name] + bytes([10])!r}\n{FORGER}")
    settings = Settings(agent=f"{module}:Forger", directory=str(tmp_path))
    files = start_run(tmp_path / "run", settings, [Task("one", "?", reference=["42"], scorer="exact")])
    run_attempts(files.path, display=SilentDisplay())
    trace = read_trace(files.trace_path("one", 1))
    assert f"{module}:Forger: its process sent what is no message" in str(trace.of("answer")[0]["error"])
    assert [score["metrics"] for score in trace.of("score")] == [{"exact": 0}]
    assert len(trace.of("answer")) == 1
