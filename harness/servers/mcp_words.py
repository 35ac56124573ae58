"""MCP messages in the words of each contract's real server, the same for all protocol revisions."""

from __future__ import annotations

from typing import Any

from stillweb.harness.tools.contract import Contract, ToolResult
from stillweb.harness.tools.toolset import ToolSession, Toolset

META = "stillweb"  # the member of `_meta` with a result's verdict and evidence


def tool_descriptions(toolset: Toolset) -> list[dict[str, Any]]:
    """Return the tools for `tools/list` as the real servers send them, in their order."""
    offered = {spec.name for spec in toolset.specs}
    return [tool for contract in toolset.contracts for tool in contract.raw_tools if tool["name"] in offered]


def contract_of(toolset: Toolset, tool: str) -> Contract | None:
    names = {spec.name: spec.contract for spec in toolset.specs}
    return next((c for c in toolset.contracts if c.name == names.get(tool)), None)


def identity(toolset: Toolset) -> tuple[str, str, str | None]:
    """Return name, version and instructions of the server."""
    if len(toolset.contracts) == 1:
        contract = toolset.contracts[0]
        return contract.server["name"], contract.server["version"], contract.instructions
    from importlib.metadata import version

    return "stillweb", version("stillweb"), None


def call_result(result: ToolResult) -> dict[str, Any]:
    """Return the JSON result of a `tools/call`."""
    value: dict[str, Any] = {"content": result.content, "isError": result.is_error}
    if result.meta:
        value["_meta"] = {META: result.meta}
    return value


async def prompt(
    toolset: Toolset, session: ToolSession, name: str, arguments: dict[str, str]
) -> dict[str, Any]:
    """Return the prompt `fetch(url)`: the page as a user message. Raise ValueError with the real server's text."""
    from stillweb.harness.tools.fetch import FetchTool

    tool = toolset.tool("fetch")
    if name != "fetch" or not isinstance(tool, FetchTool):
        raise ValueError(f"Unknown prompt: {name}")
    contract = tool.contract
    url = arguments.get("url")
    if url is None:
        raise ValueError(contract.strings["url_required"])
    fetch, address = tool, url
    document = await session.do(lambda visit: fetch.document(address, False, visit, for_user=True))
    if isinstance(document, ToolResult):
        text, told = document.text, "prompt_failed"
    else:
        text, told = document[1] + document[0], "prompt_contents"
    described = told in contract.strings
    description = contract.say(told, url=url) if described else contract.prompts[0]["description"]
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"description": description, "messages": [message]}
