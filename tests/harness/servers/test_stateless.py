"""Requests of MCP revision 2026-07-28, as the official SDK 2.3.0 sends them."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from stillweb.harness.servers.mcp import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    REVISION,
    UNSUPPORTED_VERSION,
    StatelessHandler,
    envelope,
    make_app,
)
from stillweb.harness.tools import ToolResult, Toolset, load
from stillweb.harness.tools.store import Visit
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS, make_site

META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 7,
        "method": method,
        "params": {**params, "_meta": {**META, **(meta or {})}},
    }


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    with make_site(tmp_path_factory.mktemp("stateless") / "site") as opened:
        yield opened


def answer(toolset: Toolset, *messages: dict[str, Any]) -> list[Any]:
    async def run() -> list[Any]:
        stateless = StatelessHandler(toolset)
        replies = [await stateless.answer(message) for message in messages]
        await stateless.close()
        return replies

    return asyncio.run(run())


def test_what_the_machine_lacks_is_an_error_of_the_call_alone(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_BROWSER", "/no/browser")
    toolset = Toolset(snapshot, ["playwright-mcp"])
    call = request("tools/call", name="browser_navigate", arguments={"url": BIRDS})
    failed, listed = answer(toolset, call, request("tools/list"))
    asyncio.run(toolset.close())
    assert failed["error"]["code"] == -32603
    assert failed["error"]["message"].startswith("STILLWEB_BROWSER: /no/browser")
    assert listed["result"]["tools"]


class BrokenTool:
    """A tool of one's own with a bug in it."""

    contract = replace(load("pdf-reader"), name="broken@1")

    def __init__(self, toolset: Toolset) -> None:
        self.toolset = toolset

    async def call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        raise KeyError("a bug")


def test_a_tool_that_breaks_ends_no_server(snapshot: Snapshot) -> None:
    calls = [
        request("tools/call", name="read_pdf", arguments={"sources": []}),
        request("tools/call", name="fetch", arguments={"url": BIRDS}),
    ]
    broken = f"{__name__}:BrokenTool"
    failed, fetched = answer(Toolset(snapshot, ["fetch", broken]), *calls)
    assert failed["error"] == {"code": -32603, "message": "'a bug'"}
    assert fetched["result"]["isError"] is False


def test_discovery_and_lists(snapshot: Snapshot) -> None:
    found, tools, prompts = answer(
        Toolset(snapshot, ["fetch"]),
        request("server/discover"),
        request("tools/list"),
        request("prompts/list"),
    )
    assert found["result"]["supportedVersions"] == [REVISION]
    assert found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"] == {
        "name": "mcp-fetch",
        "version": "0.6.3",
    }
    assert tools["result"]["tools"] == load("fetch").raw_tools
    assert tools["result"]["resultType"] == "complete"
    assert prompts["result"]["prompts"] == load("fetch").prompts


def test_calls(snapshot: Snapshot) -> None:
    toolset = Toolset(snapshot, ["fetch", "serper"])
    page, missed, search, got = answer(
        toolset,
        request("tools/call", name="fetch", arguments={"url": BIRDS}),
        request("tools/call", name="fetch", arguments={"url": "https://no.test/"}),
        request("tools/call", name="google_search", arguments={"q": "unrecorded"}),
        request("prompts/get", name="fetch", arguments={"url": BIRDS}),
    )
    assert "Gentoo" in page["result"]["content"][0]["text"]
    assert page["result"]["_meta"]["stillweb"]["verdict"] == "exact"
    assert missed["result"]["isError"]
    assert search["error"]["code"] == -32603
    assert search["error"]["data"]["stillweb"]["verdict"] == "miss"
    assert got["result"]["description"] == f"Contents of {BIRDS}"


def test_sessions_are_told_apart_by_name(snapshot: Snapshot) -> None:
    toolset = Toolset(snapshot, ["fetch"], limits={"requests": 1})
    call = {"name": "fetch", "arguments": {"url": BIRDS}}
    replies = answer(
        toolset,
        request("tools/call", **call),
        request("tools/call", **call),
        request("tools/call", {"stillweb/session": "other"}, **call),
    )
    assert [r["result"]["isError"] for r in replies] == [False, True, False]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            request("tools/list", {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}),
            UNSUPPORTED_VERSION,
        ),
        (request("nope/nope"), METHOD_NOT_FOUND),
        (request("tools/call", name=5), -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {}}}, -32602),
        (request("prompts/get", name="fetch"), -32602),
        (request("prompts/get", name="fetch", arguments=["url"]), -32602),
        (request("prompts/get", name="fetch", arguments={"url": 5}), -32602),
    ],
)
def test_refusals(snapshot: Snapshot, message: dict[str, Any], code: int) -> None:
    (reply,) = answer(Toolset(snapshot, ["fetch"]), message)
    assert reply["error"]["code"] == code


def test_notifications_have_no_answer_and_older_messages_are_others(snapshot: Snapshot) -> None:
    note = request("notifications/cancelled")
    del note["id"]
    assert answer(Toolset(snapshot, ["fetch"]), note) == [None]
    assert (
        envelope(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
        )
        is None
    )
    assert envelope([]) is None


def test_over_http_headers_must_agree(snapshot: Snapshot) -> None:
    async def run() -> list[tuple[int, Any]]:
        app = make_app(Toolset(snapshot, ["fetch"]))
        transport = httpx.ASGITransport(app)
        out = []
        call = request("tools/call", name="fetch", arguments={"url": BIRDS})
        right = {"MCP-Protocol-Version": REVISION, "Mcp-Method": "tools/call", "Mcp-Name": "fetch"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for headers, body in (
                (right, json.dumps(call)),
                ({**right, "Mcp-Name": "other"}, json.dumps(call)),
                ({**right, "Mcp-Method": "nope"}, json.dumps({**call, "method": "nope"})),
                (right, "junk"),
                (right, "[]"),
                (right, "[" * 100_000),
                (right, json.dumps({**call, "method": ["tools/call"]})),
                (right, json.dumps({"jsonrpc": "2.0", "method": "notifications/x"})),
            ):
                reply = await client.post("/mcp", content=body, headers=headers)
                out.append((reply.status_code, reply.json() if reply.content else None))
        return out

    results = asyncio.run(run())
    assert [status for status, _ in results] == [200, 400, 404, 400, 400, 400, 400, 202]
    assert "Gentoo" in results[0][1]["result"]["content"][0]["text"]
    assert results[1][1]["error"]["code"] == HEADER_MISMATCH
