"""The official MCP client against the frozen tools, over stdio and streamable HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_connected_server_and_client_session

from stillweb.harness.servers import mcp
from stillweb.harness.servers.mcp import make_app, make_server, serve, tool_descriptions
from stillweb.harness.servers.stdin import _AHEAD, _PIECE, Lines
from stillweb.harness.tools import Toolset, load
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS, REPORT, SITE, make_site
from tests.support.waiting import HANG, STARTS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "site"
    make_site(path).close()
    return path


@asynccontextmanager
async def connected(toolset: Toolset) -> AsyncIterator[ClientSession]:
    async with create_connected_server_and_client_session(make_server(toolset)) as client:
        yield client


def test_the_frozen_server_lists_what_the_real_one_lists(site: Path) -> None:
    async def check() -> None:
        with Snapshot.open(site) as snapshot:
            async with connected(Toolset(snapshot, ["fetch"])) as client:
                tools = (await client.list_tools()).model_dump(mode="json", by_alias=True, exclude_none=True)[
                    "tools"
                ]
                assert tools == load("fetch").raw_tools
                prompts = (await client.list_prompts()).model_dump(
                    mode="json", by_alias=True, exclude_none=True
                )["prompts"]
                assert prompts == load("fetch").prompts

    asyncio.run(check())


def test_calls_errors_and_marks(site: Path) -> None:
    async def check() -> None:
        with Snapshot.open(site) as snapshot:
            async with connected(Toolset(snapshot, ["fetch", "serper", "pdf-reader"])) as client:
                page = await client.call_tool("fetch", {"url": BIRDS})
                assert not page.isError
                assert "Gentoo" in page.content[0].text  # type: ignore[union-attr]
                assert page.meta is not None
                assert page.meta["stillweb"]["verdict"] == "exact"
                miss = await client.call_tool("fetch", {"url": "https://no.test/"})
                assert miss.isError
                assert (
                    miss.content[0].text
                    == "Failed to fetch https://no.test/: ConnectError('All connection attempts failed')"
                )  # type: ignore[union-attr]
                assert miss.meta["stillweb"]["verdict"] == "miss"  # type: ignore[index]
                wrong = await client.call_tool("fetch", {"url": BIRDS, "max_length": 0})
                assert wrong.content[0].text.startswith("Input validation error:")  # type: ignore[union-attr]
                pdf = await client.call_tool("read_pdf", {"sources": [{"url": REPORT, "pages": "2"}]})
                assert pdf.content[1].text == "[Page 2]\nPage two"  # type: ignore[union-attr]
                with pytest.raises(
                    McpError, match="Search failed: Error: SearchTool"
                ):  # as the real one: no result, an error
                    await client.call_tool("google_search", {"q": "unrecorded"})
                found = await client.call_tool("google_search", {"q": "penguins"})
                assert not found.isError
                assert (await client.call_tool("nope", {})).content[0].text == "Unknown tool: nope"  # type: ignore[union-attr]

    asyncio.run(check())


def test_the_prompt_is_the_whole_page(site: Path) -> None:
    async def check() -> None:
        with Snapshot.open(site) as snapshot:
            async with connected(Toolset(snapshot, ["fetch"])) as client:
                got = await client.get_prompt("fetch", {"url": BIRDS})
                assert got.description == f"Contents of {BIRDS}"
                assert "Gentoo" in got.messages[0].content.text  # type: ignore[union-attr]
                missed = await client.get_prompt("fetch", {"url": "https://no.test/"})
                assert missed.description == "Failed to fetch https://no.test/"
                with pytest.raises(McpError, match="URL is required"):
                    await client.get_prompt("fetch", {})

    asyncio.run(check())


def test_each_connection_is_a_session_of_its_own(site: Path) -> None:
    async def check() -> None:
        with Snapshot.open(site) as snapshot:
            toolset = Toolset(snapshot, ["fetch"], limits={"requests": 1})
            async with connected(toolset) as one, connected(toolset) as other:
                for client in (one, other):
                    assert not (await client.call_tool("fetch", {"url": BIRDS})).isError
                    assert (await client.call_tool("fetch", {"url": BIRDS})).isError

    asyncio.run(check())


def command(site: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", "from stillweb.harness.cli import main; main()", "mcp", str(site), *more]


@pytest.mark.slow
def test_over_stdio(site: Path) -> None:
    async def check() -> None:
        parameters = StdioServerParameters(
            command=sys.executable, args=command(site)[1:], env=dict(os.environ)
        )
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as client:
            hello = await client.initialize()
            assert (hello.serverInfo.name, hello.serverInfo.version) == ("mcp-fetch", "0.6.3")
            calls = await asyncio.gather(
                *(client.call_tool("fetch", {"url": f"{SITE}/{p}"}) for p in ("", "old", "gone") * 5)
            )
            assert [c.isError for c in calls] == [False, False, True] * 5

    asyncio.run(asyncio.wait_for(check(), STARTS))


def test_of_too_many_sessions_over_http_the_one_unused_for_longest_ends(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "MOST_SESSIONS", 2)

    async def check() -> list[int]:
        with Snapshot.open(site) as snapshot:
            app = make_app(Toolset(snapshot, ["fetch"]))
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
            ):

                async def post(method: str, session: str | None = None, **params: Any) -> httpx.Response:
                    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                    fields = {"mcp-session-id": session} if session else {}
                    return await client.post("/mcp", json=body, headers=fields)

                hello = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "x", "version": "1"},
                }
                made: list[str] = []
                for _ in range(3):
                    made.append((await post("initialize", **hello)).headers["mcp-session-id"])
                    await post("ping", made[0])  # the first one is in use
                return [(await post("ping", session)).status_code for session in made]

    assert asyncio.run(asyncio.wait_for(check(), STARTS)) == [200, 404, 200]


@pytest.mark.slow
def test_over_http(site: Path) -> None:
    async def check(address: str) -> list[Any]:
        async def one() -> Any:
            async with (
                streamable_http_client(address) as (read, write, _),
                ClientSession(read, write) as client,
            ):
                await client.initialize()
                return (await client.call_tool("fetch", {"url": BIRDS, "max_length": 30})).content[0]

        return await asyncio.gather(*(one() for _ in range(3)))

    process = subprocess.Popen(
        command(site, "--transport", "http"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = process.stderr.readline().strip().removeprefix("serving at ")
        assert address.startswith("http://127.0.0.1:")
        results = asyncio.run(asyncio.wait_for(check(address), STARTS))
        assert results[0] == results[1] == results[2]
        # a client that goes away in the middle does no harm
        with (
            pytest.raises(httpx.HTTPError),
            httpx.stream("POST", address, content=iter_then_fail(), timeout=HANG) as _,
        ):
            pass
        assert len(asyncio.run(asyncio.wait_for(check(address), STARTS))) == 3
        # nor does a page of another site get anywhere; one of this machine does, and must say what it wants
        for origin, status in (("https://evil.test", 403), ("null", 403), ("http://localhost:6274", 400)):
            assert httpx.post(address, headers={"Origin": origin}, timeout=HANG).status_code == status
    finally:
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=HANG)
    assert "crashed" not in told  # each client ended its session
    assert "Traceback" not in told


def iter_then_fail() -> Any:
    yield b'{"jsonrpc": "2.0", '
    raise httpx.WriteError("gone")


def test_clear_errors(site: Path) -> None:
    done = subprocess.run(command(site, "--contract", "nope"), capture_output=True, text=True, timeout=STARTS)
    assert done.returncode == 2
    assert "unknown contract 'nope'; known are" in done.stderr
    with Snapshot.open(site) as snapshot:
        toolset = Toolset(snapshot, ["fetch"])
        with pytest.raises(UsageError, match="unknown transport"):
            serve(toolset, "pigeon")
        import socket

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(MissingCapability, match="in use"):
                serve(toolset, "http", taken.getsockname()[1])
        assert make_app(toolset).routes
        assert [tool["name"] for tool in tool_descriptions(toolset)] == ["fetch"]


async def _read(descriptor: int) -> list[str]:
    lines = Lines(descriptor)
    found = [line async for line in lines]
    with pytest.raises(StopAsyncIteration):  # and not wait for more
        await anext(lines)
    return found


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"one\n", b"two\n"],
        [b"one\ntw", b"o\n\nthree"],
        [b"\xc3", b"\xbc and \xff\n"],
        [b"x" * (3 * _PIECE), b"\ny\n"],
        [b"n\n" * (3 * _AHEAD)],
    ],
)
def test_lines_come_as_they_were_written(pieces: list[bytes], blocking: bool) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, blocking)

    def write() -> None:
        for piece in pieces:
            with open(writer, "wb", closefd=False) as file:
                file.write(piece)
        os.close(writer)

    thread = Thread(target=write)
    try:
        thread.start()
        found = asyncio.run(asyncio.wait_for(_read(reader), HANG))
        thread.join(HANG)
    finally:
        os.close(reader)
    text = b"".join(pieces).decode("utf-8", "replace")
    assert found == [line for line in text.splitlines(keepends=True) if line]
