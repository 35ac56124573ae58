"""An MCP server on the SDK that remembers: notes that are added and listed, a resource, a prompt, progress."""

from __future__ import annotations

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent, ToolAnnotations

server = FastMCP("Note Keeper")
notes: list[str] = []


@server.tool()
def add(text: str, tags: list[str] | None = None) -> str:
    """Add a note."""
    notes.append(text)
    return f"note {len(notes)}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def show() -> str:
    """Return all notes."""
    return ", ".join(notes) or "no notes"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def slowly(steps: int, context: Context) -> str:  # type: ignore[type-arg]
    """Report progress."""
    for step in range(steps):
        await context.report_progress(step, steps)
    return "done"


@server.tool()
async def ask(context: Context) -> str:  # type: ignore[type-arg]
    """Let the client's model speak."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="?"))
    await context.session.create_message([message], max_tokens=1)
    return "asked"


@server.tool()
def fail() -> str:
    """Raise an error."""
    raise ValueError("no such note")


@server.resource("notes://first")
def first() -> str:
    """The first note."""
    return notes[0] if notes else "none"


@server.prompt()
def summary(style: str) -> str:
    """Ask for a summary."""
    return f"Summarise in {style}: {notes}"


if __name__ == "__main__":
    server.run()
