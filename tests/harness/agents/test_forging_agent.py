"""A process of an agent that sends what no agent sends ends its own attempt, puts nothing into its trace, and hinders no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.agents import module
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Limits, Task
from stillweb.harness.trace import read_trace
from tests.support.isolating import needs_confinement
from tests.support.openai_endpoint import Endpoint
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


MOST = 100_000  # bytes of notes and calls


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
    "a note among them": said(kind="rearranged", events=[{"event": "evidence", "n": 1, "kind": "note", "text": "x"}]),
    "an answer among them": said(kind="rearranged", events=[{"event": "answer", "n": 1, "text": "42", "error": None}]),
    "other numbers": said(kind="rearranged", events=[{"event": "evidence", "n": 7, "kind": "note", "text": "x"}]),
    "an end that is none": said(kind="played", played=["42", "won", None], given_up=0),
    "calls given up that no trace can count": said(kind="played", played=["42", "answered", None], given_up=10**400),
    "no number of calls": b'{"kind": "played", "played": ["42", "answered", null], "given_up": 1e999}',
    "what the machine lacks": said(kind="played", lacking="no disk", played=["42", "answered", None], given_up=0),
    "nothing but that": said(kind="played", lacking="no disk", played=None, given_up=0),
    "more time": said(kind="begun"),
    "calls without an end, left out of the trace": b"\n".join(
        said(kind="tool", id=n, name="fetch", arguments={"url": "https://shelf.example/list?year=2012&page=1"}) for n in range(300)
    ),
    "notes without an end": b"\n".join([said(kind="write", event="evidence", members={"kind": "note", "text": "x" * MOST})] * 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFiles]:
    data = {name: message + b"\n" for name, message in MESSAGES.items()}
    folder, code = tmp_path_factory.mktemp("forged"), f"DATA = {data!r}\n{FORGER}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_SAID", MOST)
        with run(folder, code, "forger:Forger", MESSAGES) as files:
            yield files


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_what_no_agent_sends_is_refused(name: str, forged: RunFiles) -> None:
    trace = read_trace(forged.trace_path(name, 1))
    assert "forger:Forger: its process sent what is not a message" in str(trace.of("answer")[0]["error"])
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
        "attempt.trace.write('evidence', kind='note', text='x', n=77)",
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
        "from stillweb.snapshots.errors import MissingCapability\n"
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


# It tells of the calls that it made what was neither measured nor asked, in their events and in the later order of these.
EMBELLISHER = """
import asyncio
PAGES = [{"url": f"https://shelf.example/list?year=2012&page={n}"} for n in (1, 2)]
BESIDE = {"seconds": 0.0, "order": 99, "said": "so"}
class Embellisher:
    name = "embellisher"
    def identity(self): return {"kind": "embellisher"}
    def model_options(self, env): return {"base_url": env["OPENAI_BASE_URL"], "key_variable": ""}
    async def run(self, attempt):
        told, write, rearrange = TOLD.get(attempt.task.id), attempt.trace.write, attempt.trace.rearrange
        def changed(event):
            if told is None or event["event"] not in ("model", "tool_call"): return event
            new = {**event, **told.get(event["event"], {}), "aside": BESIDE}
            return {**new, "request": {**event["request"], **told.get("request", {})}} if "request" in event else new
        def written(kind, **members):
            members = changed({"event": kind, **members})
            members.pop("event")
            return write(kind, **members)
        attempt.trace.write = written
        attempt.trace.rearrange = lambda events: rearrange([*map(changed, events)])
        await asyncio.gather(*(attempt.call("fetch", page) for page in PAGES))
        await attempt.ask({"model": "m", "messages": [{"role": "user", "content": "Which?"}]})
        return "42"
"""
TOLD: dict[str, dict[str, Any]] = {
    "how sure an answer is": {"tool_call": {"confidence": 1.0, "doubt": 9.0, "presumed": 9}},
    "another purpose": {"model": {"purpose": "judge"}},
    "another model": {"model": {"model": "better", "api": "other"}},
    "a conversation of another length": {"request": {"messages": 7}},
    "another question": {"request": {"new": [{"role": "user", "content": "What is 6 times 7?"}]}},
}


@pytest.fixture(scope="module")
def embellished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFiles]:
    code = f"TOLD = {TOLD!r}\n{EMBELLISHER}"
    with Endpoint(lambda asked: "7") as endpoint:
        more: dict[str, Any] = {"env": {"OPENAI_BASE_URL": endpoint.url}, "tape": "auto"}
        folder = tmp_path_factory.mktemp("embellished")
        with run(folder, code, "embellisher:Embellisher", TOLD, **more) as files:
            yield files


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLD)
def test_the_trace_holds_of_a_call_what_was_measured_here(name: str, embellished: RunFiles) -> None:
    told, honest = (read_trace(embellished.trace_path(task, 1)) for task in (name, "other"))
    if name == "another question":
        assert "messages that the model was not sent" in str((told.last("answer") or {})["error"])
        return
    assert len(told.of("tool_call")) == 2
    assert len(told.of("model")) == 1
    assert [*map(without_times, told.events)] == [*map(without_times, honest.events)]


def without_times(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with the names alone of what stands beside it: durations differ."""
    return {**event, "aside": sorted(event.get("aside", {}))}


ENDLESS = """
import os, signal
async def stay(attempt):
    if attempt.task.id == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if attempt.task.id == "another program":
        os.execv("/bin/sleep", ["sleep", "1000"])
    return "42"
"""


@pytest.mark.slow
@pytest.mark.own_process
def test_a_process_that_never_ends_costs_its_own_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 1.0)
    with run(
        tmp_path, ENDLESS, "endless:stay", ["stopped", "another program"], limits=Limits(seconds=2)
    ) as files:
        stopped = read_trace(files.trace_path("stopped", 1)).last("answer") or {}
        assert stopped["end"] == "seconds"


@pytest.mark.slow
def test_a_note_of_ours_stays_among_events_in_another_order(tmp_path: Path) -> None:
    """An agent that asks hosts directly is told of in its trace; two calls at once put that into another order."""
    code = (
        "import asyncio\nasync def ask(attempt):\n"
        "    pages = [f'https://shelf.example/list?year=2012&page={n}' for n in (1, 2)]\n"
        "    await asyncio.gather(*(attempt.call('fetch', {'url': url}) for url in pages))\n    return '42'\n"
    )
    options = {"direct": ["127.0.0.1:9"]}
    with run(tmp_path, code, "pair:ask", ["one"], agent_options=options) as files:
        note, *calls = read_trace(files.trace_path("one", 1)).events
        assert "asked directly" in note["text"]
        assert [event["event"] for event in calls].count("tool_call") == 2


@contextmanager
def run(folder: Path, code: str, agent: str, names: Iterable[str], **more: Any) -> Iterator[RunFiles]:
    """Run an agent on tasks of these names and one more, whose attempt must be scored, and the whole run be readable."""
    (folder / f"{agent.partition(':')[0]}.py").write_text(code)
    settings = Settings(agent=agent, contracts=(SHELF,), directory=str(folder), **more)
    tasks = [Task(name, "?", reference=["42"], scorer="exact") for name in (*names, "other")]
    files = start_run(folder / "run", settings, tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        run_attempts(files.path, display=SilentDisplay())
        assert read_trace(files.trace_path("other", 1)).of("score")[0]["metrics"] == {"exact": 1}
        summarise(files.path)
        yield files
