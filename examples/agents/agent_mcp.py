"""The same agent as an MCP client: its tools are those of a server that it starts.

usage: python agent_mcp.py QUESTION COMMAND…      such as: python agent_mcp.py "…" uvx mcp-server-fetch
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from openai import AsyncOpenAI


async def answer(question: str, command: list[str]) -> str:
    """What the model says in the end."""
    # a server that is to be recorded must be given the environment, in which the proxy is named
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.inputSchema},
            }
            for t in (await session.list_tools()).tools
        ]
        said = [{"role": "user", "content": question}]
        while True:
            reply = await AsyncOpenAI().chat.completions.create(model="small", messages=said, tools=tools)
            message = reply.choices[0].message
            if not message.tool_calls:
                return message.content
            said.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
                text = "\n".join(part.text for part in result.content)
                said.append({"role": "tool", "tool_call_id": call.id, "content": text})


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2:])))
