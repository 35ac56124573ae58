"""A program that talks to the run's tools over MCP, by the official client, with no way out of the machine."""

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.servers import program
from stillweb.harness.servers.program import AttemptTools
from stillweb.harness.servers.replaying import HOSTS, make_hosts
from stillweb.harness.tools import Toolset, http_hosts
from stillweb.harness.trace import read_trace
from stillweb.proxy.net import isolation
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS, FOUND, SEARCH_BODY, SITE, json_bytes, make_site
from tests.support.isolating import needs_isolation
from tests.support.runs import bird_task
from tests.support.waiting import STARTS

NOWHERE = "https://no.test/"
PROGRAM = f"""
import asyncio, os, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

async def main():
    async with streamable_http_client(os.environ["STILLWEB_MCP_URL"]) as (read, write, _):
        async with ClientSession(read, write) as client:
            await client.initialize()
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["fetch"], names
            page = await client.call_tool("fetch", {{"url": {BIRDS!r}}})
            assert "Gentoo" in page.content[0].text
            assert (await client.call_tool("fetch", {{"url": {NOWHERE!r}}})).isError
            more = ["{SITE}/", "{SITE}/old", "{SITE}/gone"]
            turned = more[::-1] if os.environ["STILLWEB_TASK_ID"] == "two" else more
            await asyncio.gather(*(client.call_tool("fetch", {{"url": url}}) for url in turned))
    print("7|3900\\n9|3700")

asyncio.run(main())
"""
ROUND = f"""
import os, urllib.request
bypassed = os.environ["NO_PROXY"]
assert bypassed and bypassed in os.environ["STILLWEB_MCP_URL"], bypassed
assert f"nonProxyHosts={{bypassed.partition(':')[0]}}" in os.environ["JAVA_TOOL_OPTIONS"]
page = urllib.request.urlopen({BIRDS!r}).read()
print("7|3900\\n9|3700")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "site"
    make_site(path).close()
    return path


def made(folder: Path, site: Path, code: str, names: tuple[str, ...] = ("one", "two")) -> RunFiles:
    (folder / "agent.py").write_text(code)
    agent = f"command:{sys.executable} {folder / 'agent.py'}"
    settings = Settings(agent=agent, snapshots=(str(site),), contracts=("fetch",))
    files = start_run(folder / "run", settings, [bird_task(name) for name in names])
    run_attempts(files.path, display=SilentDisplay())
    return files


@pytest.mark.slow
def test_tool_calls_over_mcp_are_in_the_trace(tmp_path: Path, site: Path) -> None:
    files = made(tmp_path, site, PROGRAM)
    seen = []
    for name in ("one", "two"):
        trace = read_trace(files.trace_path(name, 1))
        answer = trace.last("answer")
        assert answer is not None
        assert answer["end"] == "answered", answer
        calls = trace.of("tool_call")
        assert [(call["tool"], call["contract"]) for call in calls] == [("fetch", "mcp-fetch@0.6.3")] * 5
        page, missed = (next(c for c in calls if c["arguments"]["url"] == url) for url in (BIRDS, NOWHERE))
        assert page["verdict"] == "exact"
        assert "Gentoo" in page["output"]["text"]
        assert page["captures"][0]["offset"] >= 0
        assert page["aside"]["order"] == 1
        assert missed["verdict"] == "miss"
        seen.append([(call["arguments"], call["output"]) for call in calls])
    assert seen[0] == seen[1]  # what was asked at once has one order
    assert score_run(files.path) == []
    assert certify(files.path, times=1).differences == ()


def test_other_requests_still_go_to_the_gateway(tmp_path: Path, site: Path) -> None:
    trace = read_trace(made(tmp_path, site, ROUND, ("one",)).trace_path("one", 1))
    answer = trace.last("answer")
    assert answer is not None
    assert answer["end"] == "answered", answer
    assert [(call["tool"], call["verdict"]) for call in trace.of("tool_call")] == [("http", "exact")]


FLOOD = f"""
import json, os, urllib.request
fields = {{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}}
def ask(method, **params):
    body = json.dumps({{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}}).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ["STILLWEB_MCP_URL"], body, fields)) as answer:
        fields.setdefault("Mcp-Session-Id", answer.headers["Mcp-Session-Id"])
        return answer.read()
ask("initialize", protocolVersion="2025-06-18", capabilities={{}}, clientInfo={{"name": "x", "version": "1"}})
for _ in range(40 if os.environ["STILLWEB_TASK_ID"] == "one" else 1):
    ask("tools/call", name="fetch", arguments={{"url": {BIRDS!r}, "more": "x" * 100_000}})
print("7|3900\\n9|3700")
"""


def test_a_program_that_calls_without_an_end_costs_its_own_attempt(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "MOST_SAID", 1 << 20)
    files = made(tmp_path, site, FLOOD)
    ends = [read_trace(files.trace_path(name, 1)).last("answer") for name in ("one", "two")]
    assert [end and end["end"] for end in ends] == ["error", "answered"]
    assert ends[0] is not None
    assert "its tool calls take more than 1 MB" in ends[0]["error"]


@pytest.mark.slow
@needs_isolation
def test_in_a_namespace_without_a_network(tmp_path: Path, site: Path) -> None:
    (tmp_path / "agent.py").write_text(PROGRAM)
    task = {"id": "one", "question": "Which?", "answer": "7|3900\n9|3700", "scorer": "exact"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    words = ["run", "--tasks", tmp_path / "tasks.jsonl", "--agent"]
    words += [f"command:{sys.executable} {tmp_path / 'agent.py'}", "--snapshot", site, "-o", tmp_path / "run"]
    words += ["--tape", "none", "--isolate", "--contract", "fetch"]
    environment = {k: v for k, v in os.environ.items() if k != isolation.MARKER}
    done = subprocess.run(
        [sys.executable, "-c", "from stillweb.harness.cli import main; main()", *map(str, words)],
        env=environment, capture_output=True, text=True, timeout=STARTS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trace = read_trace(RunFiles(tmp_path / "run").trace_path("one", 1))
    verdicts = {call["arguments"]["url"]: call["verdict"] for call in trace.of("tool_call")}
    assert (verdicts[BIRDS], verdicts[NOWHERE]) == ("exact", "miss")
    score = trace.last("score")
    assert score is not None
    assert score["metrics"] == {"exact": 1.0}


class NoBrowser:
    """A session whose tools need what this machine has not."""

    async def call(self, name: str, arguments: dict[str, object]) -> object:
        raise MissingCapability("no browser")


def test_what_the_machine_lacks_is_no_part_of_a_program_s_attempt(site: Path) -> None:
    """The program hears of an error, and whoever would score it of what is missing."""
    with Snapshot.open(site) as snapshot:
        tools = AttemptTools(Toolset(snapshot, ["fetch"]), NoBrowser())  # type: ignore[arg-type]
        assert tools.calls() == []
        with pytest.raises(MissingCapability):
            asyncio.run(tools.call("fetch", {"url": BIRDS}))
        with pytest.raises(MissingCapability, match="no browser"):
            tools.calls()


JSON = (("Content-Type", "application/json"),)


def test_they_are_those_of_the_tools_and_made_once(tmp_path: Path) -> None:
    with make_site(tmp_path / "s") as snapshot:
        assert set(HOSTS) == set(http_hosts(Toolset(snapshot)))
        hosts = make_hosts(snapshot, accept="rule", synthetic_search=False)
        assert set(hosts) == set(HOSTS)
        recorded = Request("POST", "https://google.serper.dev/search", JSON, json_bytes(SEARCH_BODY))
        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(lambda name: hosts["google.serper.dev"](recorded, name), "abcd"))
        assert [json.loads(answer.body) for answer in said] == [FOUND] * 4
        unknown = Request("POST", "https://api.exa.ai/search", (), b'{"query": "x"}')
        assert hosts["api.exa.ai"](unknown, "a").status == 504


def test_starting_loads_no_tools() -> None:
    code = "import sys, stillweb.harness.commands.replay, stillweb.harness.servers.replaying; print([m for m in sys.modules if m.startswith('stillweb.harness.tools')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
