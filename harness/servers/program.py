"""MCP server for the program of one attempt: serves the run's contracts and records calls for the trace.

It listens at once, but loads the MCP SDK and starts only when a client connects, because most programs never do.
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

from stillweb.harness.agents.tool_event import MOST_SAID, call_members
from stillweb.harness.servers.mcp import address_of, make_app
from stillweb.harness.tools.contract import Contract, ToolResult, ToolSpec
from stillweb.harness.tools.store import Visit
from stillweb.harness.tools.toolset import Tool, ToolSession, Toolset
from stillweb.harness.trace import canonical
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError

T = TypeVar("T")

# A loopback address of its own: many clients know no ports in NO_PROXY, and 127.0.0.1 without a port would let them
# bypass the gateway for sites recorded at 127.0.0.1. If only 127.0.0.1 exists, NO_PROXY names the port, too.
_OWN = "127.0.83.87"
_COMMON = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProgramServer:
    """Running server: `url` for STILLWEB_MCP_URL, its host for `no_proxy`, and `calls` as trace members."""

    url: str
    no_proxy: str
    calls: Callable[[], list[dict[str, Any]]]


class AttemptTools:
    """Toolset that gives every connection the attempt's session, and records the calls."""

    def __init__(self, toolset: Toolset, session: ToolSession) -> None:
        self._toolset = toolset
        self._session = session
        self._noted: list[dict[str, Any]] = []
        self._said = 0  # bytes of the calls
        self._failure: StillwebError | None = None
        self._contracts = {spec.name: spec.contract for spec in toolset.specs}

    @property
    def specs(self) -> list[ToolSpec]:
        return self._toolset.specs

    @property
    def contracts(self) -> Sequence[Contract]:
        return self._toolset.contracts

    def tool(self, name: str) -> Tool | None:
        return self._toolset.tool(name)

    def unknown(self, name: str) -> ToolResult:
        return self._toolset.unknown(name)

    def unknown_code(self, name: str) -> int | None:
        return self._toolset.unknown_code(name)

    def session(self, name: str) -> AttemptTools:
        """Return the attempt's session for every connection."""
        return self

    async def do(self, work: Callable[[Visit], T]) -> T:
        return await self._session.do(work)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool and record the call."""
        if self._said > MOST_SAID:
            self._failure = UsageError(f"its tool calls take more than {MOST_SAID >> 20} MB")
            raise self._failure
        begin = time.perf_counter()
        try:
            result = await self._session.call(name, arguments)
        except MissingCapability as error:  # not the program's fault: `calls` raises it again
            self._failure = error
            raise
        seconds = time.perf_counter() - begin
        members = call_members(name, self._contracts.get(name), arguments, result, seconds)
        members["aside"]["order"] = len(self._noted) + 1
        self._said += len(canonical(members))
        self._noted.append(members)
        return result

    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded calls, in an order that is the same in every run.

        A program may call several tools at once, in an order that differs from run to run. So calls are sorted by
        tool and arguments; the real order is in `aside`. Calls of tools with state (a browser) come last, in
        their real order. Raise MissingCapability if a call lacked something on this machine, UsageError if there
        were too many.
        """
        if self._failure is not None:
            raise self._failure
        return sorted(self._noted, key=self._place)

    def _place(self, members: dict[str, Any]) -> tuple[bool, str, bytes, int]:
        order = members["aside"]["order"]
        if hasattr(self._toolset.tool(members["tool"]), "open"):
            return True, "", b"", order
        return False, members["tool"], canonical(members["arguments"]), order

    async def close(self) -> None:
        """Do nothing: the attempt ends its session."""


@asynccontextmanager
async def serve_program(toolset: Toolset, session: ToolSession) -> AsyncIterator[ProgramServer]:
    """Serve while the context is open, in the running event loop."""
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
            await asyncio.wait([at_work])  # not `await at_work`: its CancelledError would look like our own
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
    """Wait for the first connection, then serve until cancelled."""
    await _readable(listener)
    app = await asyncio.to_thread(make_app, tools, token)  # type: ignore[arg-type]  # AttemptTools has the methods that make_app uses
    import uvicorn

    from stillweb.harness.servers.guarded import server_config

    # a run's log should not mention a client that ends with an open stream
    logging.getLogger("mcp.server.streamable_http").setLevel(logging.CRITICAL)
    config = server_config(app, lifespan="on")
    config.load()
    server = uvicorn.Server(config)
    # not server.serve(): it would take over the run's signals, and poll for its end only ten times a second
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
