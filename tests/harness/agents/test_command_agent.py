"""The command agent: programs behind the gateway, when they are done, and how each is named."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stillweb.harness.agents import command, load_agent
from stillweb.harness.agents.attempt import Limits
from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs import tool_setup
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.proxy.net import relaying
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Origin
from tests.support.runs import bird_task
from tests.support.waiting import running, until

LEAVES_A_CHILD = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", {mark!r}])
print("42")
"""


def test_a_program_that_leaves_a_child_with_its_output_is_done_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LEFT_SECONDS", 0.1)
    mark = f"child of {tmp_path}"
    (tmp_path / "agent.py").write_text(LEAVES_A_CHILD.format(mark=mark))
    settings = Settings(agent=f"command:{sys.executable} {tmp_path / 'agent.py'}")
    files = start_run(tmp_path / "run", settings, [Task("a", "?", reference=["42"], scorer="exact")])
    run_attempts(files.path)
    trace = read_trace(files.trace_path("a", 1))
    answer = trace.last("answer")
    assert answer is not None
    assert (answer["text"], answer["end"]) == ("42", "answered")
    assert command.LEFT in [note.get("text") for note in trace.of("evidence")]
    assert until(lambda: not running(mark))


PAGE = b"<html><title>Birds</title><body><p>heavy: 7|3900 and 9|3700</p></body></html>"
PROGRAM = """
import os, sys, urllib.error, urllib.request
question = sys.stdin.read()
assert "OPENAI_API_KEY" not in os.environ
page = urllib.request.urlopen("http://shelf.example/birds").read().decode()
try:
    urllib.request.urlopen("http://shelf.example/other")
except urllib.error.HTTPError as error:
    print("missed", error.code, file=sys.stderr)
print(os.environ["STILLWEB_TASK_ID"], question.split()[0], file=sys.stderr)
rows = page.split("heavy: ")[1].split("<")[0].replace(" and ", "\\n")
print(rows)
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = tmp_path_factory.mktemp("snap") / "shelf"
    with Writer.open(path) as writer:
        request = Request("GET", "http://shelf.example/birds", (("Host", "shelf.example"),))
        headers = (("Content-Type", "text/html"), ("Content-Length", str(len(PAGE))))
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        writer.exchange(Exchange(request, 200, "OK", headers, PAGE, moment, begin=1, end=2))
    return path


def program_run(folder, snapshot, code, monkeypatch, limits=None, **options):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-programs")
    (folder / "agent.py").write_text(code)
    settings = Settings(
        agent=f"command:{sys.executable} {folder / 'agent.py'}",
        snapshots=(str(snapshot),),
        limits=limits or Limits(),
        agent_options=options,
    )
    files = start_run(folder / "run", settings, [bird_task("one"), bird_task("two")])
    run_attempts(files.path, display=SilentDisplay())
    return files


@pytest.mark.slow
def test_a_program_answers_from_the_snapshot_and_its_requests_are_traced(tmp_path, snapshot, monkeypatch):
    files = program_run(tmp_path, snapshot, PROGRAM, monkeypatch)
    for name in ("one", "two"):
        trace = read_trace(files.trace_path(name, 1))
        assert trace.last("score")["metrics"]["em"] == 1.0
        calls = {call["arguments"]["url"]: call for call in trace.of("tool_call")}
        assert calls["http://shelf.example/birds"]["verdict"] == "exact"
        assert calls["http://shelf.example/birds"]["captures"][0]["offset"] >= 0
        assert calls["http://shelf.example/other"]["verdict"] == "miss"
        assert calls["http://shelf.example/other"]["nearest"][0]["url"] == "http://shelf.example/birds"
    assert score_run(files.path) == []
    assert certify(files.path, times=1).differences == ()


def test_a_program_may_ask_a_host_itself_and_its_trace_says_so(tmp_path, snapshot, monkeypatch):
    code = (
        "import sys, urllib.request as u\n"
        "assert u.urlopen('http://shelf.example/birds').status == 200\n"
        "print(u.urlopen('http://127.0.0.1:%d/').read().decode())"
    )
    with Origin(lambda asked: Answer(body=b"live")) as origin:
        host = f"127.0.0.1:{origin.port}"
        files = program_run(tmp_path, snapshot, code % origin.port, monkeypatch, direct=[host])
        trace = read_trace(files.trace_path("one", 1))
        assert trace.last("answer")["text"].strip() == "live"
        assert [call["arguments"]["url"] for call in trace.of("tool_call")] == ["http://shelf.example/birds"]
        assert any("past the snapshot" in e["text"] and host in e["text"] for e in trace.of("evidence"))
        assert trace.header["agent"]["direct"] == [host]


def test_of_hosts_elsewhere_a_program_reaches_those_that_are_named_and_no_more(
    tmp_path, snapshot, monkeypatch
):
    """Neither the live web nor the ports of this machine, among them the gateways of other attempts."""
    served = ["model.test", "model.test:11434", "192.0.2.7:8000", "[2001:db8::7]:8000"]
    led, really = [], relaying._connect

    async def connect(port):
        if port[0] == "127.0.0.1":  # the gateway
            return await really(port)
        led.append(port)
        return await asyncio.open_connection("127.0.0.1", origin.port)

    monkeypatch.setattr(relaying, "_connect", connect)
    with Origin(lambda asked: Answer(body=(asked.header("host") or "").encode())) as origin:
        code = (
            "import socket, urllib.request as u\n"
            "assert u.urlopen('http://shelf.example/birds').status == 200\n"
            f"for host in {served}:\n"
            "    print(u.urlopen(f'http://{host}/').read().decode())\n"
            f"for place in (('model.test', 8080), ('2001:db8::7', 80), ('192.0.2.7', 80), ('192.0.2.8', 80), ('127.0.0.1', {origin.port})):\n"
            "    try: socket.create_connection(place, 2); print('reached', place)\n"
            "    except OSError: pass\n"
        )
        direct = [*served, "127.0.0.1", "localhost"]
        files = program_run(tmp_path, snapshot, code, monkeypatch, direct=direct)
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer["text"].split() == served
    assert set(led) == {("model.test", 80), ("model.test", 11434), ("192.0.2.7", 8000), ("2001:db8::7", 8000)}


def test_requests_without_an_end_are_an_attempt_that_failed(tmp_path, snapshot, monkeypatch):
    monkeypatch.setattr(tool_setup, "MOST_ASKED", 10_000)
    code = "import urllib.request as u\nfor _ in range(100): u.urlopen('http://shelf.example/birds').read()\nprint(42)"
    files = program_run(tmp_path, snapshot, code, monkeypatch)
    trace = read_trace(files.trace_path("one", 1))
    assert trace.last("answer")["error"] == "its requests take more than 0 MB of a ledger"
    assert trace.of("tool_call") == []


def test_the_clock_of_each_attempt_begins_at_the_same_moment(tmp_path, snapshot, monkeypatch):
    then = (datetime.now(UTC) - timedelta(days=30)).strftime("%Y-%m-%dT23:00:00.000Z")
    code = "import time; time.sleep(0.01); print(time.strftime('%Y-%m-%dT%H', time.gmtime()))"
    files = program_run(tmp_path, snapshot, code, monkeypatch, clock=then)
    for name in ("one", "two"):
        trace = read_trace(files.trace_path(name, 1))
        assert trace.last("answer")["text"] == then[:13]
        assert trace.header["agent"]["clock"] == then


@pytest.mark.parametrize(
    ("clock", "shown"),
    [("2026-11-24T10:00:00Z", "2026-11-24T10:00:00.000Z"), (20261124100000, "2026-11-24T10:00:00.000Z")],
)
def test_a_clock_as_it_may_be_written(clock, shown):
    assert load_agent("command:x", command=["true"], clock=clock).identity()["clock"] == shown


def test_a_clock_that_is_no_time_is_named():
    with pytest.raises(UsageError, match=r"clock 'recorded': must be a time as"):
        load_agent("command:x", command=["true"], clock="recorded")


def test_one_name_may_stand_alone():
    agent = load_agent("command:x", command=["true"], direct="api.openai.com", pass_env="OPENAI_API_KEY")
    assert (agent.direct, agent.pass_env) == (("api.openai.com",), ["OPENAI_API_KEY"])


@pytest.mark.slow
def test_what_a_program_read_itself_is_seen(tmp_path, monkeypatch):
    site = Site(tmp_path / "site")
    rows = "".join(f"<tr hidden><td>{n}</td><td>{mass}</td></tr>" for n, mass in ((7, 3900), (9, 3700)))
    site.add(
        "http://shelf.example/birds?_=1700000000000",
        f"<html><body><table>{rows}</table></body></html>".encode(),
    )
    site.add("http://shelf.example/data", b'{"id": 9}', headers=(("Content-Type", "application/json"),))
    kind = (("Content-Type", "application/json"),)
    asked = {"request_headers": kind, "request_body": b'{"q": 9}', "method": "POST"}
    site.add("http://shelf.example/search", b'{"mass": 3700}', headers=kind, **asked)
    site.add("http://shelf.example/a.js", b"var id = 7", headers=(("Content-Type", "text/javascript"),))
    with site.open():
        pass
    code = (
        "import urllib.request\n"
        "for name in ('birds?_=1700000099999', 'data', 'a.js'):\n"
        "    urllib.request.urlopen('http://shelf.example/' + name).read()\n"
        "asked = urllib.request.Request('http://shelf.example/search', b'{\"q\": 9}', {'Content-Type': 'application/json'})\n"
        "urllib.request.urlopen(asked).read()\n"
        "print('7|1234')"
    )
    files = program_run(tmp_path, tmp_path / "site", code, monkeypatch)
    trace = read_trace(files.trace_path("one", 1))
    calls = {call["address"].rpartition("/")[2]: call for call in trace.of("tool_call")}
    assert calls["data"]["output"]["text"] == '{"id": 9}'
    assert calls["a.js"]["output"]["text"] == ""
    assert calls["search"]["output"]["text"] == '{"mass": 3700}'
    wrong = [c for row in trace.last("answer")["rows"] for c in row if not c["right"] and c.get("reference")]
    assert {c["reference"]: [place["event"] for place in c["reference_seen"]] for c in wrong}["3900"] == [
        calls["birds?_=1700000099999"]["n"]
    ]
    assert certify(files.path, times=1).differences == ()


def test_what_the_recording_does_not_decide_is_in_a_programs_trace(tmp_path, monkeypatch):
    site = Site(tmp_path / "site")
    site.add("http://shelf.example/list?sort=a&sort=b", b"a, then b")
    with site.open():
        pass
    code = (
        "import urllib.request\n"
        "for order in ('a&sort=b', 'b&sort=a'):\n"
        "    urllib.request.urlopen('http://shelf.example/list?sort=' + order).read()"
    )
    files = program_run(tmp_path, tmp_path / "site", code, monkeypatch)
    calls = read_trace(files.trace_path("one", 1)).of("tool_call")
    assert [(call["verdict"], call["aside"].get("ambiguous")) for call in calls] == [
        ("exact", None),
        ("canonical", True),
    ]


@pytest.mark.parametrize(
    ("code", "options", "end", "error"),
    [
        ("raise SystemExit('no way')", {}, "error", "ended with code 1: no way"),
        ("pass", {}, "none", None),
        ("print('thinking')\nprint('7|3900')", {"answer": "last-line"}, "answered", None),
        ("import json,sys\nprint(json.load(sys.stdin)['id'])", {"stdin": "json"}, "answered", None),
    ],
)
def test_how_a_program_ends_is_how_its_attempt_ends(
    tmp_path, snapshot, monkeypatch, code, options, end, error
):
    files = program_run(tmp_path, snapshot, code, monkeypatch, **options)
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer["end"] == end
    assert (error or "") in (answer.get("error") or "")
    if end == "answered":
        assert answer["text"] in ("7|3900", "one")


def test_a_program_that_prints_for_ever_is_ended_before_it_takes_all_memory(tmp_path, snapshot, monkeypatch):
    monkeypatch.setattr(command, "MOST_OUTPUT", 3 << 20)
    code = "import sys\nwhile True: print('x' * 9999, flush=True); print('y' * 9999, file=sys.stderr)"
    files = program_run(tmp_path, snapshot, code, monkeypatch)
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer["end"] == "error"
    assert answer["error"].endswith("wrote more than 3 MB, which is no answer")


LEAVES_SESSIONS = """
import os, subprocess, sys, time, urllib.request
sleep = "import sys; print(flush=True); import time; time.sleep(600)"
def leave(mark, **options):
    command = [sys.executable, "-c", sleep, mark]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
    child.stdout.readline()
leave({mark!r})
leave({mark!r}, start_new_session=True)
leave({mark!r}, start_new_session=True, env={{}})
urllib.request.urlopen("http://shelf.example/birds").read()
{then}
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["print('7|3900')", "time.sleep(600)"])
def test_all_that_a_program_started_ends_with_it(tmp_path, snapshot, monkeypatch, then):
    mark = f"left by {tmp_path}"
    code, end = LEAVES_SESSIONS.format(mark=mark, then=then), "answered" if "print" in then else "seconds"
    for seconds in (2.0, 20.0, 200.0):  # until the program had time to begin
        folder = tmp_path / f"{seconds}"
        folder.mkdir()
        files = program_run(folder, snapshot, code, monkeypatch, limits=Limits(seconds=seconds))
        trace = read_trace(files.trace_path("one", 1))
        if trace.of("tool_call") and trace.last("answer")["end"] == end:
            break
    assert trace.last("answer")["end"] == end
    assert until(lambda: not running(mark))


def test_another_program_has_another_identity(tmp_path):
    """A run that is gone on with must not mix two."""
    program, other = tmp_path / "agent.sh", tmp_path / "other"
    other.mkdir()
    seen = []

    def note(command: list[object], **members: object) -> None:
        agent = load_agent("command:x", command=[str(word) for word in command], **members)
        seen.append(json.dumps(agent.identity()))

    for text in ("#!/bin/sh\necho 1\n", "#!/bin/sh\necho 2\n"):
        program.write_text(text)
        (other / "agent.sh").write_text(text)
        note([program])
        note(["sh", "agent.sh", tmp_path / "agent.sh", other / "agent.sh"])
    note([program], env={"MODE": "a"})
    note([program], env={"MODE": "b"})
    note([program], pass_env=["MODE"])
    assert len(set(seen)) == len(seen)
    program.write_text("#!/usr/bin/env sh\necho 2\n")
    note([program])
    note([other / "agent.sh"])
    assert seen[-1] == seen[-2] == seen[2]
    assert str(tmp_path) not in "".join(seen)


def test_a_program_that_is_not_there_is_named(tmp_path, snapshot):
    """Before anything begins where it is seen at once, as the attempt's error where only starting it shows it."""
    settings = Settings(agent="command:no-such-program-here", snapshots=(str(snapshot),))
    files = start_run(tmp_path / "run", settings, [bird_task("one")])
    with pytest.raises(UsageError, match="there is no program 'no-such-program-here'"):
        run_attempts(files.path, display=SilentDisplay())
    assert not files.trace_path("one", 1).exists()
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    settings = Settings(agent=f"command:{broken}", snapshots=(str(snapshot),))
    files = start_run(tmp_path / "run2", settings, [bird_task("one")])
    run_attempts(files.path, display=SilentDisplay())
    error = read_trace(files.trace_path("one", 1)).last("answer")["error"]
    assert error.startswith("broken: can't be started")


def test_what_a_program_fails_with_names_no_folder_of_this_machine(tmp_path, snapshot, monkeypatch):
    code = "import sys\nraise SystemExit(f'{__file__} got /v1/birds of http://shelf.example/a/b')"
    traces = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        files = program_run(tmp_path / name, snapshot, code, monkeypatch)
        traces.append(read_trace(files.trace_path("one", 1)))
    error = traces[0].last("answer")["error"]
    assert error.endswith("ended with code 1: agent.py got /v1/birds of http://shelf.example/a/b")
    assert "/" not in error.partition(" ")[0]
    assert traces[0].hash == traces[1].hash
