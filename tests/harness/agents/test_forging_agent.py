"""A process of an agent that sends what no agent sends ends its own attempt, puts nothing into its trace, and hinders no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from tests.support.isolating import needs_confinement
from tests.support.runs import SHELF

pytestmark = needs_confinement

# It writes to the socket by which its process asks for tools and models.
FORGER = """
import os, socket, stat
class Forger:
    name = "forger"
    def identity(self): return {"kind": "forger"}
    async def run(self, attempt):
        data = DATA.get(attempt.task.id)
        if data is None:
            return "42"
        for name in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(name))) as found:
                    stream = found.family == socket.AF_UNIX and found.type == socket.SOCK_STREAM and found.getpeername() == ""
            except OSError:
                continue
            if stream and int(name) > 2:
                socket.socket(fileno=os.dup(int(name))).sendall(data)
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
    "an end that is none": said(kind="played", played=["42", "won", None], given_up=0),
    "calls given up that no trace can count": said(kind="played", played=["42", "answered", None], given_up=10**400),
    "no number of calls": b'{"kind": "played", "played": ["42", "answered", null], "given_up": 1e999}',
    "what the machine lacks": said(kind="played", lacking="no disk", played=["42", "answered", None], given_up=0),
    "nothing but that": said(kind="played", lacking="no disk", played=None, given_up=0),
    "more time": said(kind="begun"),
}  # fmt: skip


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFiles]:
    data = {name: message + b"\n" for name, message in MESSAGES.items()}
    with run(
        tmp_path_factory.mktemp("forged"), f"DATA = {data!r}\n{FORGER}", "forger:Forger", MESSAGES
    ) as files:
        yield files


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_what_no_agent_sends_is_refused(name: str, forged: RunFiles) -> None:
    trace = read_trace(forged.trace_path(name, 1))
    assert "forger:Forger: its process sent what is no message" in str(trace.of("answer")[0]["error"])
    assert [score["metrics"] for score in trace.of("score")] == [{"exact": 0}]
    assert len(trace.of("answer")) == 1


# Each claims something by the means that Stillweb's own code has in its process.
CLAIMS = {
    "what the machine lacks": (
        "raise MissingCapability('no disk')",
        "MissingCapability: no disk",
    ),
    "what the machine lacks, told by a group": (
        "raise ExceptionGroup('', [MissingCapability('no disk')])",
        "MissingCapability: no disk",
    ),
    "another line of the trace": (
        "attempt.trace.write = partial(attempt.trace.write, n=77); await attempt.call('fetch', {'url': PAGE})",
        "n is given by the trace itself",
    ),
    "a number that no trace can hold": (
        "await attempt.call('fetch', {'url': PAGE, 'page': 10**400})",
        "a number of 401 digits is too large",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFiles]:
    code = (
        "from functools import partial\nfrom stillweb.snapshots.errors import MissingCapability\n"
        "PAGE = 'https://shelf.example/list?year=2012&page=1'\n"
        "async def claim(attempt):\n"
    ) + "".join(
        f"    if attempt.task.id == {name!r}:\n        {does}\n" for name, (does, _) in CLAIMS.items()
    )
    with run(
        tmp_path_factory.mktemp("claimed"), f"{code}    return '42'\n", "claimer:claim", CLAIMS
    ) as files:
        yield files


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_ends_the_attempt_and_no_other(name: str, claimed: RunFiles) -> None:
    answer = read_trace(claimed.trace_path(name, 1)).last("answer") or {}
    assert CLAIMS[name][1] in str(answer["error"])


@contextmanager
def run(folder: Path, code: str, agent: str, names: Iterable[str]) -> Iterator[RunFiles]:
    """Run an agent on tasks of these names and one more, whose attempt must be scored, and the whole run be readable."""
    (folder / f"{agent.partition(':')[0]}.py").write_text(code)
    settings = Settings(agent=agent, contracts=(SHELF,), directory=str(folder))
    tasks = [Task(name, "?", reference=["42"], scorer="exact") for name in (*names, "other")]
    files = start_run(folder / "run", settings, tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        run_attempts(files.path, display=SilentDisplay())
        assert summarise(files.path).statuses["scored"] == 1
        yield files
