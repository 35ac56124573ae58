"""The MCP server of one attempt's program: the run's contracts, the attempt's session, its calls noted for the trace.

It listens at once, but starts (and loads the MCP SDK) only when somebody connects, as most programs never do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from stillweb.harness.agents.tool_event import call_members
from stillweb.harness.servers.mcp import address_of, make_app
from stillweb.harness.tools.contract import Contract, ToolResult, ToolSpec
from stillweb.harness.tools.store import Visit
from stillweb.harness.tools.toolset import Tool, ToolSession, Toolset
from stillweb.harness.trace import canonical
from stillweb.snapshots.errors import MissingCapability

T = TypeVar("T")

# A loopback address of its own, so that NO_PROXY can name it for clients that know no ports there, without opening
# a way round the gateway to sites recorded at 127.0.0.1. Where only that one exists, its port is named, too.
_OWN = "127.0.83.87"
_COMMON = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProgramServer:
    """`url` for STILLWEB_MCP_URL, `no_proxy` so that clients go there directly, `calls` as members of tool calls."""

    url: str
    no_proxy: str
    calls: Callable[[], list[dict[str, Any]]]


class AttemptTools:
    """A toolset whose every connection is one session, which outlives them; notes what is called."""

    def __init__(self, toolset: Toolset, session: ToolSession) -> None:
        self._toolset = toolset
        self._session = session
        self._noted: list[dict[str, Any]] = []
        self._lacking: MissingCapability | None = None
        self._contracts = {spec.name: spec.contract for spec in toolset.specs}

    @property
    def specs(self) -> list[ToolSpec]:
        """See Toolset."""
        return self._toolset.specs

    @property
    def contracts(self) -> Sequence[Contract]:
        """See Toolset."""
        return self._toolset.contracts

    def tool(self, name: str) -> Tool | None:
        """See Toolset."""
        return self._toolset.tool(name)

    def unknown(self, name: str) -> ToolResult:
        """See Toolset."""
        return self._toolset.unknown(name)

    def unknown_code(self, name: str) -> int | None:
        """See Toolset."""
        return self._toolset.unknown_code(name)

    def session(self, name: str) -> AttemptTools:
        """The one session, whoever connects."""
        return self

    async def do(self, work: Callable[[Visit], T]) -> T:
        """See ToolSession."""
        return await self._session.do(work)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Calls a tool and notes the call."""
        begin = time.perf_counter()
        try:
            result = await self._session.call(name, arguments)
        except MissingCapability as error:  # the program is told of an error, which is no fault of its own
            self._lacking = error
            raise
        seconds = time.perf_counter() - begin
        members = call_members(name, self._contracts.get(name), arguments, result, seconds)
        members["aside"]["order"] = len(self._noted) + 1
        self._noted.append(members)
        return result

    def calls(self) -> list[dict[str, Any]]:
        """What was called. A program may call several tools at once, in an order that no two runs share; so calls are
        in the order of what was asked, and when it happened is aside. Those of a tool that goes from state to state
        (a browser), which come one by one, follow in their own order. Raises MissingCapability where one was missing."""
        if self._lacking is not None:
            raise self._lacking
        return sorted(self._noted, key=self._place)

    def _place(self, members: dict[str, Any]) -> tuple[bool, str, bytes, int]:
        order = members["aside"]["order"]
        if hasattr(self._toolset.tool(members["tool"]), "open"):
            return True, "", b"", order
        return False, members["tool"], canonical(members["arguments"]), order

    async def close(self) -> None:
        """Nothing: whoever made the session ends it."""


@asynccontextmanager
async def serve_program(toolset: Toolset, session: ToolSession) -> AsyncIterator[ProgramServer]:
    """Serves while it is open, in the running event loop."""
    tools = AttemptTools(toolset, session)
    token = secrets.token_urlsafe(16)  # other attempts' programs run on this machine, too
    with _listen() as listener:
        host, port = listener.getsockname()
        at_work = asyncio.ensure_future(_serve(tools, listener, token))
        try:
            bypass = host if host == _OWN else f"{host}:{port}"
            yield ProgramServer(address_of(listener, token), bypass, tools.calls)
        finally:
            at_work.cancel()
            await asyncio.wait([at_work])  # not itself: its end would look like one of ours, and hide that
            if not at_work.cancelled():
                at_work.result()


def _listen() -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((_OWN, 0))
    except OSError:
        listener.bind((_COMMON, 0))
    listener.listen(128)
    listener.setblocking(False)
    return listener


async def _serve(tools: AttemptTools, listener: socket.socket, token: str) -> None:
    """Waits for somebody, and then serves until it is cancelled."""
    await _readable(listener)
    app = await asyncio.to_thread(make_app, tools, token)  # type: ignore[arg-type]  # what it uses of a toolset
    import uvicorn

    from stillweb.harness.servers.guarded import configured

    # a client that leaves its stream open when it ends is nothing that a run should speak of
    logging.getLogger("mcp.server.streamable_http").setLevel(logging.CRITICAL)
    config = configured(app, lifespan="on")
    config.load()
    server = uvicorn.Server(config)
    # not server.serve(): that would take the run's signals, and look up only ten times a second whether to end
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.shutdown(sockets=[listener])


async def _readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    somebody = asyncio.Event()
    loop.add_reader(listener, somebody.set)
    try:
        await somebody.wait()
    finally:
        loop.remove_reader(listener)
