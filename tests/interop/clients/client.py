"""The same as client.mjs with the official Python SDK, 1.x or 2.x: whichever this interpreter has.

python client.py JOB | @FILE
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

JOB = json.loads(Path(sys.argv[1][1:]).read_text() if sys.argv[1].startswith("@") else sys.argv[1])
SDK = int(version("mcp").split(".")[0])


async def connect(stack: AsyncExitStack):  # type: ignore[no-untyped-def]  # either SDK's client
    from mcp import StdioServerParameters

    url, command = JOB.get("url"), JOB.get("command")
    server = command and StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    if SDK >= 2:
        from mcp import Client

        era = JOB["era"]
        client = Client(url or server, mode="legacy" if era == "legacy" else "auto")
        await stack.enter_async_context(client)
        if era != "legacy" and client.protocol_version != era:
            sys.exit(f"spoke {client.protocol_version}, not {era}")
        return client
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    streams = await stack.enter_async_context(streamable_http_client(url) if url else stdio_client(server))
    client = await stack.enter_async_context(ClientSession(*streams[:2]))
    hello = await client.initialize()
    client.server_info, client.server_capabilities = hello.serverInfo, hello.capabilities
    return client


def plain(value):  # type: ignore[no-untyped-def]
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main() -> dict[str, object]:
    try:
        from mcp import McpError as Refused
    except ImportError:
        from mcp import MCPError as Refused
    async with AsyncExitStack() as stack:
        client = await connect(stack)
        told = {"server": plain(client.server_info), "results": []}
        told["tools"] = plain(await client.list_tools())["tools"]
        if client.server_capabilities.prompts:
            told["prompts"] = plain(await client.list_prompts())["prompts"]
        for name, given in JOB["calls"]:
            try:
                result = plain(await client.call_tool(name, given))
            except Refused as error:
                told["results"].append({"error": [error.error.code, error.error.message]})
                continue
            mark = result.get("_meta", {}).get("stillweb")
            told["results"].append({"content": result["content"], "isError": result["isError"], "mark": mark})
        for given in JOB.get("prompts", ()):
            try:
                told["results"].append(plain(await client.get_prompt("fetch", given)))
            except Refused as error:
                told["results"].append({"error": [error.error.code, error.error.message]})
        return told


sys.stdout.write(json.dumps(asyncio.run(main())))
