"""Agents: scripts and what they take out of texts, programs behind the gateway, and how each is named."""

import asyncio
import json
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from harness.agents import extract, load_agent
from harness.attempt import Limits
from harness.certificate import certify
from harness.display import SilentDisplay
from harness.run_files import Settings
from harness.runner import run_attempts, start_run
from harness.summary import score_run
from harness.trace import read_trace
from snapshots.capture import Exchange
from snapshots.errors import UsageError
from snapshots.request import Request
from snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.support.runs import SHELF, bird_task, make_run, write_script
from tests.support.waiting import until

MARKDOWN = "words\n\n| id | name |\n|---|:--:|\n| 1 | a \\| b |\n| 2 |  |\n\nmore\n\nx | y\n--|--\n3 | 4\n"
HTML = "<html><table><tr><th>id<th>name</tr><tr><td> 1 </td><td><a>a</a> b</td></tr></table></html>"
ARIA = """\
- generic [ref=e1]:
  - button "Apply" [ref=e2]
  - table [ref=e3]:
    - rowgroup [ref=e4]:
      - row "id name" [ref=e5]:
        - columnheader "id" [ref=e6]
        - columnheader "name" [ref=e7]
    - rowgroup [ref=e8]:
      - row "1 Ada" [ref=e9]:
        - cell "1" [ref=e10]
        - cell [ref=e11]:
          - link "Ada" [ref=e12] [cursor=pointer]:
            - /url: /ada
      - row "2 plain" [ref=e13]:
        - cell "2" [ref=e14]
        - cell [ref=e15]: plain
"""


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (MARKDOWN, [[["id", "name"], ["1", "a | b"], ["2", ""]], [["x", "y"], ["3", "4"]]]),
        (HTML, [[["id", "name"], ["1", "a b"]]]),
        (ARIA, [[["id", "name"], ["1", "Ada"], ["2", "plain"]]]),
        ("no table", []),
    ],
)
def test_tables_are_taken_from_markdown_html_and_browser_snapshots(text, tables):
    assert extract.tables(text) == tables


def test_a_table_is_found_by_its_columns_or_place():
    assert extract.table(MARKDOWN, "Y")[1] == ["3", "4"]
    assert extract.table(MARKDOWN, index=1)[1] == ["3", "4"]
    assert extract.records(MARKDOWN, "id")[1] == {"id": "2", "name": ""}
    with pytest.raises(UsageError, match=r"no table has the columns mass; tables found: id \| name; x \| y"):
        extract.table(MARKDOWN, "mass")
    with pytest.raises(UsageError, match="there is no table 5: the text has 2"):
        extract.table(MARKDOWN, index=5)


def test_cells_lines_json_and_references_are_taken_out():
    assert extract.pick([{"a": "1", "B": "2"}], "b", "A") == [["2", "1"]]
    with pytest.raises(UsageError, match="no column 'c'; there are a"):
        extract.pick([{"a": "1"}], "c")
    assert extract.piped([["1", "2"], ["3", "4"]]) == "1|2\n3|4"
    assert extract.find("year: 2012.", r"year: (\d+)") == "2012"
    assert extract.find("year: 2012.", r"\d+") == "2012"
    assert extract.find_all("a1 b2", r"([a-z])(\d)") == [["a", "1"], ["b", "2"]]
    assert extract.from_json('Contents of x:\n{"a": [1]} and more') == {"a": [1]}
    assert extract.ref(ARIA, "button") == "e2"
    assert extract.ref(ARIA, "cell", 1) == "e11"
    assert extract.columns_of("2007   34  5071\n\n2008\t46\t5020") == [
        ["2007", "34", "5071"],
        ["2008", "46", "5020"],
    ]
    assert extract.words_of("a b\n\nc") == [["a", "b"], ["c"]]
    assert extract.csv_rows('a,"b,c"\n') == [["a", "b,c"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: extract.find("x", "y"), "nothing matches 'y'"),
        (lambda: extract.find("x", "(x)|(y)", 2), r"what matches has no group 2 of '\(x\)\|\(y\)'"),
        (lambda: extract.from_json("x"), "holds no JSON object or array"),
        (lambda: extract.from_json("{x"), "holds no whole JSON value"),
        (lambda: extract.ref(ARIA, "slider"), r"no element 0 of the page matches 'slider' \(0 do\)"),
    ],
)
def test_what_is_not_there_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_a_row_of_dashes_is_a_row():
    """Dashes stand for what is missing; only below the head are they a rule."""
    text = "| a | b |\n|---|---|\n| - | - |\n| 1 | 2 |\n| --- | --- |\n\n|---|---|\n| x | y |\n"
    assert extract.tables(text) == [[["a", "b"], ["-", "-"], ["1", "2"], ["---", "---"]], [["x", "y"]]]


def played(folder, script, **settings):
    files = make_run(folder, ["t"], script=script, **settings)
    return read_trace(files.trace_path("t", 1))


def test_a_script_fills_arguments_and_skips_steps(tmp_path):
    steps = [
        {"set": {"pages": [1, 2], "empty": []}},
        {"when": "{{ pages | length > 5 }}", "call": "fetch", "with": {"url": "never"}},
        {
            "call": "fetch",
            "with": {"url": "https://shelf.example/list?year=2012&page={{ pages[1] }}"},
            "as": "page",
        },
    ]
    trace = played(
        tmp_path,
        {"default": {"steps": steps, "answer": "{{ task.id }} {{ (page | table)[1][0] }} {{ attempt }}"}},
    )
    assert [c["arguments"] for c in trace.of("tool_call")] == [
        {"url": "https://shelf.example/list?year=2012&page=2"}
    ]
    assert trace.last("answer")["text"] == "t 11 1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            {"steps": [{"set": {"a": "{{ nothing_here }}"}}], "answer": "x"},
            "step 1: 'nothing_here' is undefined",
        ),
        ({"steps": [], "answer": "{{ task.id | table }}"}, "answer: no table has the columns"),
        (
            {"steps": [{"call": "fetch", "with": {"url": "https://no.example/"}}]},
            "step 1: fetch failed: Failed to fetch",
        ),
        ({"steps": [{"set": {"a": "{{ 'x' | find('[') }}"}}]}, "step 1: unterminated character set"),
        ({"steps": [{"set": {"a": "{{ 1 / 0 }}"}}]}, "step 1: division by zero"),
        ({"steps": [{"set": {"a": "{{ ''.__class__.__mro__ }}"}}]}, "step 1: .*unsafe"),
    ],
)
def test_a_script_that_fails_says_at_which_step(tmp_path, script, message):
    answer = played(tmp_path, {"default": script}).last("answer")
    assert answer["end"] == "error"
    assert re.search(message, answer["error"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"taks": {}}, "unknown member 'taks'"),
        ({"tasks": []}, None),
        ({"tasks": ["x"]}, "tasks: must be a mapping"),
        ({"tasks": {"a": []}}, r"tasks\.a: must be a mapping"),
        ({"tasks": {"a": {"stepz": []}}}, r"tasks\.a: unknown member 'stepz'"),
        ({"tasks": {"a": {"steps": {}}}}, None),
        ({"tasks": {"a": {"steps": ["x"]}}}, r"tasks\.a\.steps\[1\]: must be a mapping"),
        ({"tasks": {"a": {"steps": [{"cal": "x"}]}}}, r"steps\[1\]: unknown member 'cal'"),
        ({"tasks": {"a": {"steps": [{"with": {}}]}}}, r"steps\[1\]: needs call or set"),
        ({"tasks": {"a": {"steps": [{"call": 5}]}}}, r"steps\[1\]\.call: must be text"),
        ({"tasks": {"a": {"steps": [{"call": None}]}}}, r"steps\[1\]\.call: must be text"),
        ({"tasks": {"a": {"steps": [{"call": "x", "with": ["y"]}]}}}, r"steps\[1\]\.with: must be a mapping"),
        (
            {"tasks": {"a": {"steps": [{"call": "x", "with": {"day": date(2020, 1, 2)}}]}}},
            r"agent\.yaml: tasks\.a\.steps\[1\]\.with\.day: is read as a date; put it in quotes",
        ),
        ({"tasks": {"a": {"steps": [{"call": "x", "with": {True: 1}}]}}}, "the name True is read as a bool"),
        (
            {"tasks": {"a": {"steps": [{"call": "x", "with": {"n": float("inf")}}]}}},
            "inf is no number of JSON",
        ),
        ({"tasks": {7: {"steps": [{"call": "x", "with": {1: 2, "b": 3}}]}}}, None),
        ([1], "must hold a mapping, not list"),
    ],
)
def test_a_script_that_is_wrong_is_named_with_its_place(tmp_path, script, message):
    path = write_script(tmp_path, script)
    if message is None:
        assert load_agent(path).identity()
        return
    with pytest.raises(UsageError, match=message):
        load_agent(path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nonsense", "no agent 'nonsense': say script:FILE"),
        ("no_such_module:Agent", "there is no module 'no_such_module'"),
        ("harness.task:Agent", "the module has no 'Agent'"),
        ("harness.task:Problem.x", "the module has no"),
        ("command:", "no agent"),
        ("scrip:agent.yaml", r"no agent 'scrip:agent\.yaml': say script:FILE"),
        ("json:dumps", "agent json:dumps: can't be made: dumps"),
        ("math:pi", "agent math:pi: is no agent and makes none, but float"),
        ("command:'python agent.py", "command: No closing quotation"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_named(spec, message):
    with pytest.raises(UsageError, match=message):
        load_agent(spec)


def test_a_program_may_be_given_a_yaml_file():
    assert load_agent("command:python agent.py settings.yaml").command[-1] == "settings.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent: openai\n", "model: is missing"),
        ("agent: openai\nmodel: m\napi: telepathy\n", "api: must be chat or responses"),
        ("agent: openai\nmodel: 3\n", "model: must not be int"),
        ("agent: openai\nmodel: m\ntemperature: 0\n", "unknown member 'temperature'"),
        ("agent: command\n", "command: must be a program"),
        ("agent: command\ncommand: x\nstdin: voice\n", "stdin: must be text or json"),
        ("agent: command\ncommand: x\ncolour: red\n", "unknown member 'colour'"),
        ("agent: 7\n", "agent: must be script, openai, command or module:object"),
        ("agent: [\n", r"agent\.yaml:2: not YAML"),
    ],
)
def test_an_agent_file_that_is_wrong_names_the_member(tmp_path, text, message):
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_agent(str(path))


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


class AtOnce:
    """An agent of one's own that makes ten calls at a time."""

    name = "at-once"

    def identity(self):
        return {"kind": "at-once"}

    async def run(self, attempt):
        calls = (attempt.call("fetch", {"url": "https://shelf.example/"}) for _ in range(10))
        await asyncio.gather(*calls, return_exceptions=True)
        return "x"


def test_calls_at_once_keep_the_limit_too(tmp_path):
    settings = Settings(
        agent="tests.harness.test_agents:AtOnce",
        contracts=(SHELF,),
        tool_options={"wait": 0.01},
        limits=Limits(calls=3),
    )
    files = start_run(tmp_path / "run", settings, [bird_task("one")])
    run_attempts(files.path, display=SilentDisplay())
    assert len(read_trace(files.trace_path("one", 1)).of("tool_call")) == 3


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
    assert [(call["verdict"], call["meta"].get("ambiguous")) for call in calls] == [
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


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path, snapshot, monkeypatch):
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(__file__).with_suffix('.pid').write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    for seconds in (2.0, 20.0, 200.0):  # until the program had time to begin
        folder = tmp_path / f"{seconds}"
        folder.mkdir()
        files = program_run(folder, snapshot, code, monkeypatch, limits=Limits(seconds=seconds))
        if (folder / "agent.pid").exists():
            break
    assert read_trace(files.trace_path("one", 1)).last("answer")["end"] == "seconds"

    pid = int((folder / "agent.pid").read_text())
    assert until(lambda: ended(pid))


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
    assert f"{broken}: can't be started" in error
