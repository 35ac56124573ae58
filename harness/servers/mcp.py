"""MCP server of a toolset, on the official SDK: stdio and streamable HTTP, one session for each connection.

`tools/list`, prompts and errors are those of the contract's real server. With one contract the server also has that
server's name and version. The SDK handles the protocol revisions with `initialize`; `stateless` handles 2026-07-28.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from stillweb.harness.servers.mcp_words import (
    META,
    call_result,
    contract_of,
    identity,
    prompt,
    tool_descriptions,
)
from stillweb.harness.servers.stateless import MOST_SESSIONS, HttpFront, StatelessHandler, envelope
from stillweb.harness.tools.toolset import ToolSession, Toolset
from stillweb.proxy.browser import running
from stillweb.proxy.net.addresses import host_port
from stillweb.snapshots.errors import UsageError

if TYPE_CHECKING:
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.types import RequestId

T = TypeVar("T")

TRANSPORTS = ("stdio", "http")
PATH = "/mcp"
INTERNAL_ERROR = -32603
SESSION_FIELD = b"mcp-session-id"
# names of the SDK's exceptions when a client disconnects
GONE = ("ClosedResourceError", "BrokenResourceError", "ClientDisconnect")


def make_server(toolset: Toolset) -> Server[ToolSession, Any]:
    """Return the SDK's server. Its lifespan is that of a connection, so each connection has its own tool session."""
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import McpError

    numbers = itertools.count(1)

    @asynccontextmanager
    async def connection(_: Server[ToolSession, Any]) -> AsyncIterator[ToolSession]:
        session = toolset.session(f"mcp-{next(numbers)}")
        try:
            yield session
        finally:
            await session.close()

    class CancellingServer(Server[ToolSession, Any]):
        """The SDK's server, with cancelling done by `_sifted`."""

        async def run(self, read: Any, *rest: Any, **more: Any) -> None:  # type: ignore[override]
            await _sifted(super().run, read, *rest, **more)

    name, version, instructions = identity(toolset)
    server = CancellingServer(name, version, instructions, lifespan=connection)
    tools = [types.Tool.model_validate(tool) for tool in tool_descriptions(toolset)]

    async def list_tools(_: types.ListToolsRequest) -> types.ServerResult:
        return types.ServerResult(types.ListToolsResult(tools=tools))

    async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
        tool = request.params.name
        if (code := toolset.unknown_code(tool)) is not None:
            raise McpError(types.ErrorData(code=code, message=toolset.unknown(tool).text))
        session = server.request_context.lifespan_context
        given = request.params.arguments or {}
        result = await _until_cancelled(server.request_context.request_id, lambda: session.call(tool, given))
        contract = contract_of(toolset, tool)
        if result.is_error and contract is not None and contract.errors == "jsonrpc":
            raise McpError(
                types.ErrorData(code=INTERNAL_ERROR, message=result.text, data={META: result.meta})
            )
        return types.ServerResult(types.CallToolResult.model_validate(call_result(result)))

    # set by hand: the SDK's decorators check arguments with error texts of their own, not the contract's
    server.request_handlers[types.ListToolsRequest] = list_tools
    server.request_handlers[types.CallToolRequest] = call_tool
    if any(contract.prompts for contract in toolset.contracts):
        _add_prompts(server, toolset)
    return server


# Running requests of the connection that a task belongs to. The SDK ends the whole connection if a client cancels while the
# answer is being written, the usual moment for a tool that answers at once, so it never receives `notifications/cancelled`:
# a running handler is cancelled here, and a request that was already answered keeps its answer.
_at_work: ContextVar[dict[RequestId, anyio.CancelScope]] = ContextVar("_at_work")


async def _sifted(run: Callable[..., Awaitable[None]], read: Any, *rest: Any, **more: Any) -> None:
    """Run the SDK's loop of a connection on the messages of `read`, without the cancel notifications."""
    import anyio

    _at_work.set({})
    into, out = anyio.create_memory_object_stream[Any](0)

    async def sift() -> None:
        # a client's DELETE closes this stream: its running requests end with it
        with contextlib.suppress(anyio.ClosedResourceError):
            async with into, read:
                async for item in read:
                    request = _cancelled_by(item)
                    if request is None:
                        await into.send(item)
                    elif scope := _at_work.get().get(request):
                        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sift)
        await run(out, *rest, **more)
        tasks.cancel_scope.cancel()


async def _until_cancelled(request: RequestId, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work`. Raise McpError, with the SDK's message, if the client cancels the request first."""
    import anyio
    from mcp.shared.exceptions import McpError
    from mcp.types import ErrorData

    scopes = _at_work.get()
    with anyio.CancelScope() as scopes[request]:
        try:
            return await work()
        finally:
            del scopes[request]
    raise McpError(ErrorData(code=0, message="Request cancelled"))


def _cancelled_by(item: Any) -> RequestId | None:
    """Return the id of the request that a message cancels, or None."""
    from mcp.types import JSONRPCNotification

    message = getattr(getattr(item, "message", None), "root", None)
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    return given if isinstance(given, str | int) else None


def _add_prompts(server: Server[ToolSession, Any], toolset: Toolset) -> None:
    from mcp import types
    from mcp.shared.exceptions import McpError

    prompts = [types.Prompt.model_validate(p) for contract in toolset.contracts for p in contract.prompts]

    async def list_prompts(_: types.ListPromptsRequest) -> types.ServerResult:
        return types.ServerResult(types.ListPromptsResult(prompts=prompts))

    async def get_prompt(request: types.GetPromptRequest) -> types.ServerResult:
        session = server.request_context.lifespan_context
        try:
            value = await prompt(toolset, session, request.params.name, request.params.arguments or {})
        except ValueError as error:
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=str(error))) from error
        return types.ServerResult(types.GetPromptResult.model_validate(value))

    server.request_handlers[types.ListPromptsRequest] = list_prompts
    server.request_handlers[types.GetPromptRequest] = get_prompt


def serve(
    toolset: Toolset,
    transport: str = "stdio",
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    ready: Callable[[str], None] | None = None,
    writes: bool = False,
) -> None:
    """Serve until the client disconnects (stdio) or the process is asked to end (http).

    `ready` is called with the address once clients can connect. With `writes` (calls store something) the address
    contains a token that each request must have. Raise UsageError for an unknown transport, MissingCapability if the
    port is taken.
    """
    import anyio

    if transport not in TRANSPORTS:
        raise UsageError(f"unknown transport {transport!r}; known are {', '.join(TRANSPORTS)}")
    if transport == "stdio":
        if sys.stdin is None or sys.stdout is None:
            raise UsageError("stdio is closed; a client speaks through standard input and output")
        running.run(_stdio(toolset))
    else:
        token = secrets.token_urlsafe(16) if writes else ""
        anyio.run(serve_app, make_app(toolset, token, {host}), host, port, ready, token)


async def _stdio(toolset: Toolset) -> None:
    import anyio
    from mcp import types
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage

    from stillweb.harness.servers.stdin import Lines

    server = make_server(toolset)
    stateless = StatelessHandler(toolset)
    older_in, older = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    try:
        stdin: Any = Lines(sys.stdin.fileno())
        async with (
            stdio_server(stdin) as (read, write),
            write.clone() as ours,  # the SDK closes its copy when stdin ends, before all answers are written
            anyio.create_task_group() as tasks,
        ):

            async def answer(message: dict[str, Any]) -> None:
                reply = await stateless.answer(message)
                if reply is not None:
                    await ours.send(SessionMessage(types.JSONRPCMessage.model_validate(reply)))

            async def sort() -> None:
                """Answer requests of revision 2026-07-28 here, and pass all others to the SDK."""
                async with older_in:
                    async for item in read:
                        if isinstance(item, SessionMessage):
                            message = item.message.model_dump(mode="json", by_alias=True, exclude_none=True)
                            if envelope(message) is not None:
                                tasks.start_soon(answer, message)
                                continue
                        await older_in.send(item)

            tasks.start_soon(sort)
            await server.run(older, write, server.create_initialization_options())
    # the client disconnected while answers were being written
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        with anyio.CancelScope(shield=True):
            await stateless.close()
            await toolset.close()


class SessionLimit:
    """ASGI application around the SDK's: of more than MOST_SESSIONS sessions the one unused for longest ends.

    A session takes 74 kB, and lasts for 30 minutes (with older SDKs for ever) if its client leaves without ending it. A
    client whose session has ended is told so (404), and begins another.
    """

    def __init__(self, behind: Any) -> None:
        self._behind = behind
        self._used: dict[bytes, int] = {}  # requests under way, by session, the one unused for longest first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        named = dict(scope.get("headers", ())).get(SESSION_FIELD)

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                made = dict(message.get("headers", ())).get(SESSION_FIELD)
                if made is not None and message["status"] < 400:
                    self._used.setdefault(made, 0)
            await send(message)

        self._count(named, 1)
        try:
            await self._behind(scope, receive, noted)
        finally:
            self._count(named, -1)
        idle = (session for session, under_way in self._used.items() if not under_way)
        if len(self._used) > MOST_SESSIONS and (oldest := next(idle, None)) is not None:
            del self._used[oldest]
            await self._end(scope, oldest)

    def _count(self, session: bytes | None, more: int) -> None:
        if session in self._used:
            self._used[session] = self._used.pop(session) + more

    async def _end(self, scope: Any, session: bytes) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Any) -> None:
            """Drop the answer: nobody waits for it."""

        fields = [one for one in scope["headers"] if one[0] in (b"host", b"accept", b"mcp-protocol-version")]
        await self._behind(
            {**scope, "method": "DELETE", "headers": [*fields, (SESSION_FIELD, session)]}, receive, send
        )


def make_app(toolset: Toolset, token: str = "", names: Collection[str] = ()) -> Any:
    """Return an ASGI application that serves the toolset at `/mcp` (streamable HTTP), behind `RequestGuard`.

    `/mcp/` is the same: many clients don't follow a redirect of a POST.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    from stillweb.harness.servers.guarded import RequestGuard

    manager = StreamableHTTPSessionManager(make_server(toolset), json_response=True)
    stateless = StatelessHandler(toolset)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            async with manager.run():
                yield
        finally:
            await stateless.close()
            await toolset.close()

    front = HttpFront(stateless, SessionLimit(manager.handle_request))
    return Starlette(
        routes=[Route(path, endpoint=front) for path in (PATH, f"{PATH}/")],
        middleware=[Middleware(RequestGuard, token=token, names=names)],
        lifespan=lifespan,
    )


def address_of(listener: socket.socket, token: str = "") -> str:
    """Return the URL of the server on this listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{host_port(host, port)}{PATH}" + (f"?token={token}" if token else "")


def _worth_telling(record: logging.LogRecord) -> bool:
    """Return False for the SDK's log records (with traceback) of a client that disconnected."""
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ not in GONE


async def serve_app(
    app: Any, host: str, port: int, ready: Callable[[str], None] | None, token: str = ""
) -> None:
    """Serve an ASGI application until the process is asked to end."""
    import uvicorn

    from stillweb.harness.servers.guarded import listen, server_config

    logging.getLogger("mcp.server.streamable_http").addFilter(_worth_telling)
    listener = listen(host, port)
    config = server_config(app, level="warning", leave=2, lifespan="on")
    if ready is not None:
        ready(address_of(listener, token))
    await uvicorn.Server(config).serve(sockets=[listener])
