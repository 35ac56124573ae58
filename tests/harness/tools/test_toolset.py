"""Toolsets: contracts by name, sessions that share nothing, limits that hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stillweb.harness.tools import MAKERS, Limits, ToolResult, Toolset, contract_names
from stillweb.harness.tools.contract import said
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
    assert asyncio.run(toolset.session("s").call("nope", {})) == said(words, error=True)
    assert toolset.unknown_code("nope") == code
    assert all(toolset.unknown_code(spec.name) is None for spec in toolset.specs)
    several = Toolset(snapshot, ["fetch", contract] if "fetch" not in contract else ["serper", contract])
    assert asyncio.run(several.session("s").call("nope", {})) == said("Unknown tool: nope", error=True)
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
