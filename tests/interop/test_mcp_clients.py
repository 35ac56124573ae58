"""The official MCP clients (Python 1.x and 2.x, TypeScript 1.x and 2.x, the Inspector's command line) list and call
every tool of every contract, over stdio and streamable HTTP, in both eras of the protocol."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.servers.mcp import REVISION, tool_descriptions
from stillweb.harness.tools import Toolset, load
from stillweb.snapshots.snapshot import Snapshot
from tests.interop.readers import ROOT
from tests.support.every_tool import CALLS, make_every_tool_site
from tests.support.waiting import HANG, STARTS

CLIENTS = Path(__file__).parent / "clients"
INSPECTOR = CLIENTS / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
WITHOUT = "the Node packages are not here: ./setup.sh --peers installs them"
LEGACY = "legacy"
# With STILLWEB_CLIENTS=all every client calls every tool in every way (two minutes of it), else the Inspector the first of a contract, and
# the browser's are called only here:
WHOLE = os.environ.get("STILLWEB_CLIENTS") == "all"
BROWSING = {("python 1", LEGACY, "stdio"), ("node 2", REVISION, "http")}
CONTRACTS = list(CALLS)
EVERY = [call for calls in CALLS.values() for call in calls]
FIRST = [calls[0] for calls in CALLS.values()]


def node() -> str:
    """Playwright's own Node, which is newer than a distribution's."""
    from playwright._impl._driver import compute_driver_executable

    return str(compute_driver_executable()[0])


def speaker(client: str) -> list[str]:
    """The command of a client, without its job."""
    if client.startswith("python"):
        python = sys.executable if client == "python 1" else str(ROOT / ".venv-peers/bin/python")
        if not Path(python).exists():
            pytest.skip("no .venv-peers: ./setup.sh --peers makes it")
        return [python, str(CLIENTS / "client.py")]
    if not INSPECTOR.exists():
        pytest.skip(WITHOUT)
    return [node(), str(CLIENTS / "client.mjs")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_every_tool_site(tmp_path_factory.mktemp("clients") / "site")


def serving(site: Path, *more: str) -> list[str]:
    contracts = [word for name in CONTRACTS for word in ("--contract", name)]
    return ["mcp", str(site), *contracts, *more]


@pytest.fixture
def over_stdio(site: Path, commands_path: str) -> list[str]:
    """The command of a server that a client starts, as a fork."""
    return [str(shutil.which("stillweb", path=commands_path)), *serving(site)]


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "stillweb", *serving(site, "--transport", "http")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().strip().removeprefix("serving at ")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG)


@pytest.fixture(scope="module")
def expected(site: Path) -> list[dict[str, Any]]:
    """Return the results of the tools in this process."""

    async def ask() -> list[dict[str, Any]]:
        with Snapshot.open(site) as snapshot:
            toolset = Toolset(snapshot, CONTRACTS)
            session = toolset.session("here")
            out = []
            for name, given in EVERY:
                result = await session.call(name, given)
                contract = next(load(spec.contract) for spec in toolset.specs if spec.name == name)
                if result.is_error and contract.errors == "jsonrpc":
                    out.append({"error": result.text})
                else:
                    out.append({"content": result.content, "isError": result.is_error})
            await session.close()
            await toolset.close()
            return out

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def tools(site: Path) -> list[dict[str, Any]]:
    with Snapshot.open(site) as snapshot:
        return tool_descriptions(Toolset(snapshot, CONTRACTS))


def same_result(told: dict[str, Any], expected: dict[str, Any]) -> bool:
    if "error" in expected:  # clients put words of their own before a server's
        return expected["error"] in told.get("error", [0, ""])[1]
    return (told.get("content"), told.get("isError")) == (expected["content"], expected["isError"])


@pytest.mark.slow
def test_the_calls_are_of_every_tool(tools: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert {tool["name"] for tool in tools} == {name for name, _ in EVERY}
    fine = {name for (name, _), told in zip(EVERY, expected, strict=True) if told.get("isError") is False}
    assert fine == {name for name, _ in EVERY}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "era", "transport"),  # each client in each era and over each transport
    [
        ("python 1", LEGACY, "stdio"),
        ("python 1", LEGACY, "http"),
        ("python 2", LEGACY, "http"),
        ("python 2", REVISION, "stdio"),
        ("node 1", LEGACY, "stdio"),
        ("node 1", LEGACY, "http"),
        ("node 2", LEGACY, "stdio"),
        ("node 2", REVISION, "http"),
    ],
)
def test_a_client_lists_and_calls_every_tool(
    client: str, era: str, transport: str, request: pytest.FixtureRequest, site: Path,
    tools: list[dict[str, Any]], expected: list[dict[str, Any]],
) -> None:  # fmt: skip
    every = WHOLE or (client, era, transport) in BROWSING
    count = len(EVERY) - (0 if every else len(CALLS["playwright-mcp"]))
    job: dict[str, Any] = {"sdk": int(client[-1]), "era": era, "calls": EVERY[:count]}
    if transport == "stdio":
        job["command"] = request.getfixturevalue("over_stdio")
    else:
        job["url"] = request.getfixturevalue("address")
    done = subprocess.run([*speaker(client), json.dumps(job)], capture_output=True, text=True, timeout=STARTS)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["server"]["name"] == "stillweb"
    assert told["tools"] == tools
    assert [prompt["name"] for prompt in told["prompts"]] == ["fetch"]
    for call, ours, theirs in zip(EVERY[:count], expected[:count], told["results"], strict=True):
        assert same_result(theirs, ours), (call, theirs, ours)
    marks = [result["mark"]["verdict"] for result in told["results"] if result.get("mark")]
    assert {"exact", "miss"} <= set(marks)


def inspect(target: list[str], era: str, *more: str) -> dict[str, Any]:
    if not INSPECTOR.exists():
        pytest.skip(WITHOUT)
    command = [
        node(),
        str(INSPECTOR),
        "--cli",
        *target,
        "--protocol-era",
        era,
        "--format",
        "json",
        "--connect-timeout",
        "300000",
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STARTS)
    assert done.returncode in (0, 5), done.stderr  # 5: the tool said that it failed
    value: dict[str, Any] = json.loads(done.stdout)
    return value.get("result", value)


@pytest.mark.slow
@pytest.mark.timeout(1200 if WHOLE else 600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", [LEGACY, "modern"])
def test_the_inspector_lists_and_calls(
    era: str, transport: str, request: pytest.FixtureRequest, site: Path,
    tools: list[dict[str, Any]], expected: list[dict[str, Any]],
) -> None:  # fmt: skip
    target = (
        request.getfixturevalue("over_stdio")
        if transport == "stdio"
        else [request.getfixturevalue("address")]
    )
    shown = inspect(target, era, "--method", "tools/list")
    assert shown["tools"] == tools
    for (name, given), ours in zip(EVERY, expected, strict=True):
        alone = not name.startswith("browser_")  # each process is a session, so a browser's page is gone
        first = (name, given) in FIRST and alone and transport == "http" and era == LEGACY
        if "error" in ours or not (WHOLE or first):
            continue
        told = inspect(
            target, era, "--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(given)
        )
        assert told["content"], name
        if alone:
            assert same_result(told, ours), (name, told)
