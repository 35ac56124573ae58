"""Toolsets: contracts by name, sessions that share nothing, limits that hold."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.commands.mcp import command
from stillweb.harness.runs.resources import open_tools
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.tools import MAKERS, Limits, ToolResult, Toolset, contract_names
from stillweb.harness.tools.contract import fill_template
from stillweb.harness.trace import UNHASHED
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS, REPORT, SITE


def test_contracts_by_name_version_and_alias(snapshot: Snapshot) -> None:
    toolset = Toolset(snapshot, ["fetch", "mcp-fetch@0.6.3", "pdf-reader"])
    specs = toolset.session("s").list()
    assert [(spec.name, spec.contract) for spec in specs] == [
        ("fetch", "mcp-fetch@0.6.3"),
        ("fetch", "mcp-fetch@0.6.3"),
        ("read_pdf", "pdf-reader@2.0.8"),
    ][1:]
    assert {"mcp-fetch@0.6.3", "pdf-reader@2.0.8", "serper-mcp@1.0.0", "playwright-mcp@0.0.79"} <= set(
        contract_names()
    )


def test_an_unknown_contract_is_one_clear_line(snapshot: Snapshot) -> None:
    with pytest.raises(UsageError, match=r"unknown contract 'fetsch'; known are .*mcp-fetch@0\.6\.3"):
        Toolset(snapshot, ["fetsch"])
    with pytest.raises(UsageError, match="unknown contract 'mcp-fetch@9'"):
        Toolset(snapshot, ["mcp-fetch@9"])


def test_an_unknown_tool_is_an_error(toolset: Toolset) -> None:
    result = asyncio.run(toolset.session("s").call("nope", {}))
    assert result.is_error
    assert result.text == "Unknown tool: nope"


@pytest.mark.parametrize(
    ("contract", "words", "code"),
    [
        ("mcp-fetch@2026.10.24", "Unknown tool: nope", -32602),
        ("pdf-reader", "Unknown tool: nope", None),
        ("serper", "Unknown tool", -32603),
        ("playwright-mcp", '### Error\nTool "nope" not found', None),
    ],
)
def test_an_unknown_tool_is_told_in_each_contracts_own_form(
    snapshot: Snapshot, contract: str, words: str, code: int | None
) -> None:
    toolset = Toolset(snapshot, [contract])
    assert asyncio.run(toolset.session("s").call("nope", {})) == fill_template(words, error=True)
    assert toolset.unknown_code("nope") == code
    assert all(toolset.unknown_code(spec.name) is None for spec in toolset.specs)
    several = Toolset(snapshot, ["fetch", contract] if "fetch" not in contract else ["serper", contract])
    assert asyncio.run(several.session("s").call("nope", {})) == fill_template(
        "Unknown tool: nope", error=True
    )
    assert several.unknown_code("nope") is None


def test_the_older_fetch_server_looks_at_no_name(snapshot: Snapshot) -> None:
    session = Toolset(snapshot, ["mcp-fetch@0.6.3"]).session("s")
    assert asyncio.run(session.call("nope", {"url": BIRDS})) == asyncio.run(
        session.call("fetch", {"url": BIRDS})
    )
    # the SDK checks what is listed, and only the server itself checks the rest
    wrong = asyncio.run(session.call("nope", {}))
    assert wrong.is_error
    assert wrong.text.startswith("1 validation error for Fetch\nurl\n  Field required")


def test_the_limit_of_requests_is_each_sessions_own(snapshot: Snapshot) -> None:
    toolset = Toolset(snapshot, ["fetch"], limits=Limits(requests=2))
    for name in ("a", "b"):
        session = toolset.session(name)
        results = [asyncio.run(session.call("fetch", {"url": BIRDS})) for _ in range(3)]
        assert [r.is_error for r in results] == [False, False, True]
        assert results[2].text == "limit reached: requests 3 is over the limit of 2"
        assert results[2].meta == {"limit": "requests", "most": 2, "asked": 3}


def test_the_limit_of_calls_in_flight(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __init__(self, toolset: Toolset) -> None:
            self.go = asyncio.Event()

        async def call(self, name: str, arguments: dict[str, Any], visit: Any) -> ToolResult:
            await asyncio.sleep(0.01)
            return ToolResult([{"type": "text", "text": "done"}])

    monkeypatch.setitem(MAKERS, "mcp-fetch", Slow)
    toolset = Toolset(snapshot, ["fetch"], limits={"in_flight": 2})

    async def three() -> list[ToolResult]:
        session = toolset.session("s")
        first = await asyncio.gather(*(session.call("fetch", {}) for _ in range(3)))
        return [*first, await session.call("fetch", {})]

    assert [r.is_error for r in asyncio.run(three())] == [False, False, True, False]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"request": 1}, "unknown limit 'request'"),
        ({"pages": -1}, "limit 'pages'"),
        ({"pages": "3"}, "limit 'pages'"),
        ({"pages": True}, "limit 'pages'"),
    ],
)
def test_wrong_limits_are_named(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Limits.of(limits)


def test_parallel_and_serial_callers_get_the_same(toolset: Toolset) -> None:
    calls = [
        ("fetch", {"url": url, "max_length": n})
        for url in (BIRDS, REPORT, f"{SITE}/old", "https://no.test/")
        for n in (7, 50, 999)
    ]
    calls += [("read_pdf", {"sources": [{"url": REPORT, "pages": str(n)}]}) for n in (1, 2, 3)]

    def run(call: tuple[str, dict[str, Any]]) -> ToolResult:
        return asyncio.run(toolset.session("x").call(*call))

    def told(results: Iterable[ToolResult]) -> list[Any]:
        """Leave out how sure they are, which depends on what was asked before."""
        return [
            (one.content, one.is_error, {k: v for k, v in one.meta.items() if k not in UNHASHED})
            for one in results
        ]

    serial = [run(call) for call in calls]
    with ThreadPoolExecutor(8) as pool:
        assert told(pool.map(run, calls * 3)) == told(serial * 3)

    async def together() -> list[ToolResult]:
        session = toolset.session("together")
        return await asyncio.gather(*(session.call(*call) for call in calls))

    assert told(asyncio.run(together())) == told(serial)


def test_closing_twice_does_nothing(snapshot: Snapshot) -> None:
    toolset = Toolset(snapshot, ["fetch"], synthetic_search=True)
    toolset.store.index()

    async def ends() -> None:
        session = toolset.session("s")
        await session.close()
        await session.close()
        await toolset.close()
        await toolset.close()

    asyncio.run(ends())


def test_what_fails_ahead_shows_with_the_first_call(snapshot: Snapshot) -> None:
    class Late:
        async def prepare(self) -> None:
            raise MissingCapability("no browser")

        async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
            raise MissingCapability("no browser")

        async def close(self) -> None:
            return

    class Opens:
        def open(self, session: str) -> Late:
            return Late()

    async def go(toolset: Toolset) -> None:
        toolset._tools["fetch"] = Opens()  # type: ignore[assignment]
        session = toolset.session("s")
        session.prepare()
        await asyncio.sleep(0)
        with pytest.raises(MissingCapability, match="no browser"):
            await session.call("fetch", {})
        await session.close()

    asyncio.run(go(Toolset(snapshot, ["fetch"])))


TEXT = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.fixture
def titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example's two files, in the working directory; the name of its tool."""
    (contract,) = (block for block in blocks("json") if '"contract"' in block)
    (tmp_path / "dictionary.json").write_text(contract, encoding="utf-8")
    (tmp_path / "titles.py").write_text(blocks("python")[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "titles:TitleTool"
    for name in ("titles", "gone", "half"):
        sys.modules.pop(name, None)


def test_a_file_of_servers_is_json_that_names_a_command_of_ours() -> None:
    (servers,) = (block for block in blocks("json") if "mcpServers" in block)
    _, *arguments = json.loads(servers)["mcpServers"]["web"]["args"]
    assert command.make_context("mcp", arguments, resilient_parsing=True).params["contracts"] == (
        "playwright-mcp",
    )


def test_how_to_add_a_tool(snapshot: Snapshot, titles: str) -> None:
    session = Toolset(snapshot, ["fetch", titles]).session("s")
    assert [(spec.name, spec.contract) for spec in session.list()] == [
        ("fetch", "mcp-fetch@0.6.3"),
        ("title_of", "dictionary@1.0"),
    ]
    result = asyncio.run(session.call("title_of", {"url": BIRDS}))
    assert result.text == f"{BIRDS} is called: A page"
    assert result.meta["verdict"] == "exact"
    missed = asyncio.run(session.call("title_of", {"url": "https://no.test/"}))
    assert missed.is_error
    assert missed.text == "No such page: https://no.test/"


def test_a_run_has_it_beside_others(snapshot: Snapshot, titles: str) -> None:
    tools = open_tools(snapshot, Settings(agent="script:x", contracts=("fetch", titles)))
    assert isinstance(tools, Toolset)
    assert {spec.name for spec in tools.specs} == {"fetch", "title_of"}
    with pytest.raises(UsageError, match="has no member `contract` made by read_contract"):
        open_tools(snapshot, Settings(agent="script:x", contracts=("fetch", "titles:Path")))


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("titles:Missing", "", "module 'titles' has no class or function 'Missing'"),
        ("no_such_module:Tool", "", "there is no module 'no_such_module'"),
        ("titles:Path", "", "has no member `contract`"),
        ("gone:x", "import pathlib, stillweb.harness.tools as t\nx = t.read_contract(pathlib.Path('no.json'))", "no.json: No such"),
        ("half:x", "import pathlib, stillweb.harness.tools as t\nx = t.read_contract(pathlib.Path('half.json'))", "half.json: a contract needs a member 'server'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tool_of_ones_own_is_told(
    snapshot: Snapshot, titles: str, tmp_path: Path, name: str, code: str, says: str
) -> None:
    (tmp_path / "half.json").write_text('{"contract": "half@1"}', encoding="utf-8")
    if code:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(code, encoding="utf-8")
    with pytest.raises(UsageError) as told:
        Toolset(snapshot, [name])
    assert says in str(told.value)


def test_the_example_of_use(snapshot: Snapshot) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    assert asyncio.run(names["ask"](snapshot.paths[0], BIRDS)).startswith(f"Contents of {BIRDS}:\n")


def test_every_named_contract_exists() -> None:
    named = set(re.findall(r"`([a-z-]+@[0-9.]+)`", TEXT))
    assert named <= set(contract_names())
    assert {name for name in contract_names() if not name.startswith("jina")} <= named
