"""A call over MCP stdio: the frozen fetch server beside the SDK's own server that answers the same text from memory.

    python -m benchmarks.mcp_stdio [calls]

Both run at once and are asked in turns, so that what else the machine does hits both alike. Issue 5 allows ours the SDK's
round trip plus a tenth. CPU is of the server's process, and counts where the machine is busy.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.tools import make

SDK = """
import sys, anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
server = Server("sdk")
schema = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
with open(sys.argv[1], encoding="utf-8") as file:
    answer = file.read()
@server.list_tools()
async def tools():
    return [types.Tool(name="fetch", description="the same", inputSchema=schema)]
@server.call_tool()
async def call(name, arguments):
    return [types.TextContent(type="text", text=answer)]
async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""


def cpu(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children() -> set[int]:
    """Our own child processes."""
    return {int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


async def compare(folder: Path, calls: int) -> tuple[float, float]:
    """Prints both; gives the ratios ours / SDK's of the round trip and of the server's CPU."""
    make(folder / "site", 200)
    urls = [f"https://site{n % 50}.test/page/{n}" for n in range(200) if n % 100]
    ours = [
        sys.executable,
        "-c",
        "from stillweb.harness.cli import main; main()",
        "mcp",
        str(folder / "site"),
    ]
    times: dict[str, list[float]] = {"ours": [], "SDK": []}
    used: dict[str, float] = {}
    async with AsyncExitStack() as stack:

        async def start(command: list[str]) -> tuple[Any, int]:
            before = children()
            parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
            streams = await stack.enter_async_context(stdio_client(parameters))
            client = await stack.enter_async_context(ClientSession(*streams))
            await client.initialize()
            return client, (children() - before).pop()

        frozen, frozen_pid = await start(ours)
        text = (await frozen.call_tool("fetch", {"url": urls[0]})).content[0].text
        (folder / "answer").write_text(text, encoding="utf-8")
        plain, plain_pid = await start([sys.executable, "-c", SDK, str(folder / "answer")])
        sides = (("ours", frozen), ("SDK", plain))
        for url in urls:
            for _, client in sides:
                await client.call_tool("fetch", {"url": url})
        before = {"ours": cpu(frozen_pid), "SDK": cpu(plain_pid)}
        for number in range(calls):
            for name, client in sides if number % 2 else sides[::-1]:
                begin = time.perf_counter()
                await client.call_tool("fetch", {"url": urls[number % len(urls)]})
                times[name].append(time.perf_counter() - begin)
        used = {"ours": cpu(frozen_pid) - before["ours"], "SDK": cpu(plain_pid) - before["SDK"]}
    for name in times:
        click.echo(
            f"{name:5} p50 {statistics.median(times[name]) * 1e6:6.0f} µs, server's CPU {used[name] / calls * 1e6:5.0f} µs a call"
        )
    return statistics.median(times["ours"]) / statistics.median(times["SDK"]), used["ours"] / used["SDK"]


@click.command()
@click.argument("calls", default=2000)
def main(calls: int) -> None:
    """Exit code 1 when ours takes over a tenth longer."""
    with tempfile.TemporaryDirectory(prefix="stillweb-bench-") as folder:
        trip, effort = asyncio.run(compare(Path(folder), calls))
    click.echo(f"round trip {trip:.2f} ×, server's CPU {effort:.2f} × (bar: round trip ≤ 1.10)")
    sys.exit(int(trip > 1.10))


if __name__ == "__main__":
    main()
