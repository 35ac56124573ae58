"""Agents that ask a model several things at once: one trace whatever the timing, and repetitions that are the same."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.agents.attempt import Limits
from stillweb.harness.results.certificate import certify
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import Trace, read_trace
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange
from tests.support.agents_at_once import LAPS
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF
from tests.support.waiting import HANG

PAGES = [("fetch", {"url": f"https://shelf.example/list?year=2012&page={n}"}) for n in (2, 1, 2)]
# whose calls are the same in whatever order their answers come
STEADY = ["Gathers", "Streams", "Queues", "Threads", "SubAgents", "Same", "Tools", "Packaged"]
# calls to the endpoint in each
MODEL_CALLS = {
    "Gathers": 9,
    "Streams": 7,
    "Queues": 8,
    "Threads": 9,
    "SubAgents": 13,
    "Same": 5,
    "Tools": 2,
    "Packaged": 4,
}


def says(asked: Asked) -> Said:
    text = str(asked.items[-1].get("content"))
    packaged = asked.items[0].get("role") == "system" and not asked.tool_answers
    if text == "tools" or packaged:
        return PAGES
    if text == "fail":
        raise ConnectionError  # the connection ends without an answer
    return f"re {sha256(repr([item.get('content') for item in asked.items]).encode()).hexdigest()[:8]}"


def after(wait: Callable[[str], float], policy: Callable[[Asked], Said] = says) -> Callable[[Asked], Said]:
    """A policy whose answers take as many seconds as `wait` says of the request's text."""

    def late(asked: Asked) -> Said:
        time.sleep(wait(str(asked.items[-1].get("content"))))
        return policy(asked)

    return late


def shuffling(seed: int, most: float = 0.1) -> Callable[[str], float]:
    numbers, lock = random.Random(seed), threading.Lock()

    def wait(text: str) -> float:
        with lock:
            return numbers.random() * most

    return wait


def given(folder: Path, variable: str) -> str:
    """Write an agent file that passes the variable to the agent's process; return its path."""
    file = folder / "agent.yaml"
    file.write_text(json.dumps({"agent": "tests.support.agents_at_once:Every", "pass_env": [variable]}))
    return str(file)


def run(
    folder: Path, names: list[str], policy: Callable[[Asked], Said], agent: str = "Every", **settings: Any
) -> RunFiles:
    """A run in which each of these agents makes one attempt; its endpoint is gone when it returns."""
    with Endpoint(policy) as endpoint:
        ready = Settings(
            agent=agent if agent.endswith(".yaml") else f"tests.support.agents_at_once:{agent}",
            contracts=(SHELF,),
            env={"OPENAI_BASE_URL": endpoint.url},
            **settings,
        )
        files = start_run(folder, ready, [Task(name, "Which?", "7") for name in names])
        run_attempts(files.path, display=SilentDisplay())
    return files


def trace_of(files: RunFiles, name: str) -> Trace:
    return read_trace(files.trace_path(name, 1))


@pytest.mark.slow
def test_the_order_in_which_answers_come_changes_no_trace(tmp_path: Path) -> None:
    hashes: dict[str, set[str]] = {name: set() for name in STEADY}
    orders: dict[str, set[str]] = {name: set() for name in STEADY}
    for seed in range(2):
        files = run(tmp_path / str(seed), STEADY, after(shuffling(seed)))
        for name in STEADY:
            trace = trace_of(files, name)
            assert (trace.last("answer") or {})["end"] == "answered"
            assert len(trace.of("model")) == MODEL_CALLS[name]
            # the endpoint's port is on the tape only
            hashes[name].add(trace.hash)
            orders[name].add(str([event["aside"].get("order") for event in trace.of("model")]))
    assert {name: len(found) for name, found in hashes.items()} == dict.fromkeys(STEADY, 1)
    shuffled = [name for name in STEADY if len(orders[name]) > 1]
    assert {"Gathers", "Queues", "Threads", "SubAgents"} <= set(shuffled)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["TasksInTurn", "ThreadsInTurn"])
def test_lanes_that_call_in_any_turn_have_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """The calls never overlap: it is enough that they could have come in another order."""
    hashes = set()
    for order in ("123", "321"):
        monkeypatch.setenv("STILLWEB_TEST_TURNS", order)
        trace = trace_of(run(tmp_path / order, [agent], says, given(tmp_path, "STILLWEB_TEST_TURNS")), agent)
        assert (trace.last("answer") or {})["end"] == "answered"
        asked = [event["aside"]["order"] for event in trace.of("tool_call")]
        assert len(asked) == 3
        hashes.add(trace.hash)
    assert len(hashes) == 1


@pytest.mark.slow
def test_repetitions_are_the_same(tmp_path: Path) -> None:
    slow = {"document 0": 0.4, "document 1": 0.2}
    names = [*STEADY, "Races", "Tolerant", "Broken"]
    decided = threading.Event()

    def wait(text: str) -> float:
        if text.startswith("first: "):
            decided.set()
        elif text in LAPS and text != LAPS[3]:  # two that come at once are another race each time
            assert decided.wait(HANG)
        return slow.get(text, 0.0)

    files = run(tmp_path / "run", names, after(wait))
    assert (trace_of(files, "Races").last("answer") or {})["aside"]["given_up"] >= 1
    assert "re " in str((trace_of(files, "Tolerant").of("model")[-1])["request"]["new"])
    assert "Disconnected" in str(trace_of(files, "Tolerant").of("model")[-1]["request"]["new"]).title()
    assert (trace_of(files, "Broken").last("answer") or {})["end"] == "error"
    assert certify(files.path, times=1).differences == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "end", "names"),
    [
        (Limits(steps=4), "steps", ["Gathers", "Threads"]),
        (Limits(tokens=80), "tokens", ["Streams", "Queues"]),
        (Limits(seconds=2.0), "seconds", ["Gathers", "Streams", "Queues", "Threads"]),
    ],
)
def test_where_a_limit_struck_a_repetition_ends(
    tmp_path: Path, limits: Limits, end: str, names: list[str]
) -> None:
    hangs = 30.0 if end == "seconds" else 0.0

    def wait(text: str) -> float:
        return hangs if text.endswith("document 4") else 0.05 * (len(text) % 3)

    def policy(asked: Asked) -> Said:
        end_at = time.monotonic() + wait(str(asked.items[-1].get("content")))
        while time.monotonic() < end_at and not ended:
            time.sleep(0.01)
        return says(asked)

    ended: list[bool] = []
    with Endpoint(policy) as endpoint:
        ready = Settings(
            agent="tests.support.agents_at_once:Every",
            contracts=(SHELF,),
            env={"OPENAI_BASE_URL": endpoint.url},
            limits=limits,
        )
        files = start_run(tmp_path / "run", ready, [Task(name, "Which?", "7") for name in names])
        run_attempts(files.path, display=SilentDisplay())
        ended.append(True)
    assert {(trace_of(files, name).last("answer") or {})["end"] for name in names} == {end}
    assert certify(files.path, times=1).differences == ()


@pytest.mark.slow
def test_where_a_limit_of_tool_calls_struck_a_repetition_ends(tmp_path: Path) -> None:
    """The clock decides which lane makes the last call that the limit lets pass, and no tape holds that."""
    names = ["SubAgents", "Tools"]
    files = run(tmp_path / "run", names, after(shuffling(3)), limits=Limits(calls=2))
    assert {(trace_of(files, name).last("answer") or {})["end"] for name in names} == {"calls"}
    assert certify(files.path, times=1).differences == ()


@pytest.mark.slow
def test_a_lane_that_was_too_slow_for_a_limit_is_refused_again_however_quick_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_TEST_ANSWERS", "4")
    files = run(
        tmp_path / "run", ["Slow"], says, given(tmp_path, "STILLWEB_TEST_ANSWERS"), limits=Limits(tokens=60)
    )
    trace = trace_of(files, "Slow")
    assert ((trace.last("answer") or {})["end"], len(trace.of("model"))) == ("tokens", 4)
    monkeypatch.setenv("STILLWEB_TEST_ANSWERS", "0")
    assert certify(files.path, times=1).differences == ()


@pytest.mark.slow
def test_each_of_the_same_questions_gets_its_own_answer_again(tmp_path: Path) -> None:
    numbers = iter(range(9))

    def policy(asked: Asked) -> Said:
        if str(asked.items[-1]["content"]) != "what?":
            return "done"
        number = next(numbers)
        time.sleep(0.5 - 0.1 * number)
        return f"answer {number}"

    files = run(tmp_path / "run", ["Numbered"], policy)
    answer = (trace_of(files, "Numbered").last("answer") or {})["text"]
    assert sorted(answer.split("; ")) == [f"answer {n}" for n in range(5)]
    assert certify(files.path, times=1).differences == ()


@pytest.mark.slow
def test_what_hangs_on_the_clock_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = run(tmp_path / "asks", ["Clocked"], after(shuffling(1)))
    (line,) = certify(files.path, times=1).differences
    assert "is not on the tape" in line
    assert "messages[0].content differs at character" in line
    agent = given(tmp_path, "STILLWEB_TEST_PATIENCE")
    slow_first = after(lambda text: 0.3 if text == "document 0" else 0.0)
    files = run(tmp_path / "waits", ["Hasty"], slow_first, agent)
    monkeypatch.setenv("STILLWEB_TEST_PATIENCE", "0.000001")
    (line,) = certify(files.path, times=1).differences
    assert "gave up" in line
    assert "what it does hangs on the clock" in line
    assert "\n" not in line


PROGRAM = """
import json, os, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor
def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    asked = urllib.request.Request("http://model.example/v1/chat/completions", body, {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(asked).read())["text"]
with ThreadPoolExecutor(8) as pool:
    print(" ".join(sorted(pool.map(ask, [f"document {n}" for n in range(6)] + ["what?"] * 3))))
"""


@pytest.mark.slow
def test_a_program_with_many_connections_has_one_trace(tmp_path: Path) -> None:
    texts = [f"document {n}" for n in range(6)] + ["what?"] * 3
    with Writer.open(tmp_path / "site") as writer:
        for n, text in enumerate(texts):
            sent = f'{{"model": "m", "messages": [{{"role": "user", "content": "{text}"}}]}}'.encode()
            # as long as a model's answers are, with its envelope
            answer = json.dumps({"text": f"re {n}", "model": "m", "note": "." * 200}).encode()
            kind = (("Content-Type", "application/json"),)
            # all asked before the first is answered, and answered from the last to the first
            begin, end = n + 1, 100 - n
            writer.exchange(
                exchange(
                    "http://model.example/v1/chat/completions",
                    answer,
                    method="POST",
                    sent=sent,
                    headers=kind,
                    request_headers=(("Host", "model.example"), *kind),
                    begin=begin,
                    end=end,
                )
            )
    (tmp_path / "agent.py").write_text(PROGRAM)
    agent, tasks = (
        f"command:{sys.executable} {tmp_path / 'agent.py'}",
        [Task(f"t{n}", "Which?", "7") for n in range(4)],
    )
    files = start_run(tmp_path / "run", Settings(agent=agent, snapshots=(str(tmp_path / "site"),)), tasks)
    run_attempts(files.path, display=SilentDisplay())
    for task in tasks:
        trace = trace_of(files, task.id)
        told = str((trace.last("answer") or {})["text"]).removeprefix(" ".join(f"re {n}" for n in range(6)))
        assert set(told.split()) <= {"re", "6", "7", "8"}  # each document its own
    assert certify(files.path, times=1).differences == ()
