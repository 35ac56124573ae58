"""A program that asks a model and calls the run's tools is recorded with the tools beside it, as docs/runs.md says."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from stillweb.harness.trace import read_trace
from tests.harness.small_site import make
from tests.support.command_line import Started, stillweb
from tests.support.openai_endpoint import Asked, Endpoint, Said

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_state")]

QUESTION = "What is the page called?"
AGENT = """
import asyncio, os, sys, httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main():
    async with streamablehttp_client(os.environ["STILLWEB_MCP_URL"]) as (read, write, _), ClientSession(read, write) as tools:
        await tools.initialize()
        page = (await tools.call_tool("fetch", {"url": "https://a.test/0"})).content[0].text
    said = [{"role": "user", "content": sys.stdin.read().strip()}, {"role": "user", "content": page}]
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    asked = {"model": "m", "messages": said}
    print(httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=asked, headers=key).json()["choices"][0]["message"]["content"])

asyncio.run(main())
"""


def says(asked: Asked) -> Said:
    assert "that says something at some length" in json.dumps(asked.items)
    return "A page"


@pytest.mark.slow
def test_what_it_asked_a_model_lies_over_the_pages(tmp_path: Path) -> None:
    site = make(tmp_path / "site")
    (tmp_path / "agent.py").write_text(AGENT)
    task = {"id": "one", "question": QUESTION, "answer": "A page"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "question").write_text(f"{QUESTION}\n")
    served = Started("mcp", site, "--contract", "fetch", "--transport", "http")
    assert served.process.stderr is not None
    tools = served.process.stderr.readline().split()[-1]
    with Endpoint(says) as endpoint, (tmp_path / "question").open() as question:
        env = {
            "STILLWEB_MCP_URL": tools,
            "OPENAI_API_KEY": "sk-of-the-recording",
            "OPENAI_BASE_URL": endpoint.url,
        }
        past = tools.removeprefix("http://").removesuffix("/mcp")
        program = ["env", f"NO_PROXY={past}", f"no_proxy={past}", sys.executable, tmp_path / "agent.py"]
        recorded = stillweb("record", "-o", tmp_path / "calls", "--", *program, env=env, stdin=question)
        assert (recorded.code, recorded.out) == (0, "A page\n")
    served.interrupt()
    served.end()

    command = shlex.join([sys.executable, str(tmp_path / "agent.py")])
    variables = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": endpoint.url}
    agent = {"agent": "command", "command": command, "env": variables}
    (tmp_path / "agent.yaml").write_text(json.dumps(agent))
    words = ("--tasks", tmp_path / "tasks.jsonl", "--agent", tmp_path / "agent.yaml", "--contract", "fetch")
    layers = ("--snapshot", site, "--snapshot", tmp_path / "calls")
    done = stillweb("run", *words, *layers, "-o", tmp_path / "run")
    assert done.code == 0, done.err
    trace = read_trace(tmp_path / "run" / "traces" / "one.1.jsonl")
    assert {(call["tool"], call["verdict"]) for call in trace.of("tool_call")} == {
        ("http", "varies:credentials"),
        ("fetch", "exact"),
    }
    assert trace.last("score")["metrics"] == {"exact": 1.0}
