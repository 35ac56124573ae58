"""MCP server of a toolset, on the official SDK: stdio and streamable HTTP, one session for each connection.

`tools/list`, prompts and errors are those of the contract's real server. With one contract the server also has that
server's name and version.

The SDK handles the protocol revisions with `initialize`. `StatelessHandler` handles 2026-07-28, which the installed SDK
does not know: there is no initialize and no session header, and each request names its revision in `params._meta` and is
answered on its own. Such a client does not say which of its requests belong together, but a snapshot with server states
must know: the session is named in `_meta["stillweb/session"]` or in the header `Stillweb-Session`, and by default it is
the client's name. Subscriptions and streamed notifications are not implemented, because a snapshot has none.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from stillweb.harness.tools.contract import Contract, ToolResult
from stillweb.harness.tools.toolset import ToolSession, Toolset
from stillweb.proxy.browser import running
from stillweb.proxy.net.addresses import host_port, listen
from stillweb.snapshots.errors import StillwebError, UsageError

if TYPE_CHECKING:
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.types import RequestId


REVISION = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SESSION_KEY = "stillweb/session"

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
STATUS = {
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
MOST_SESSIONS = 1024
# method -> the member that the header Mcp-Name repeats
_NAMED = {"tools/call": "name", "prompts/get": "name"}


class Refusal(Exception):
    """JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data

    def reply(self, request_id: Any) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": request_id, "error": error}


def envelope(message: Any) -> dict[str, Any] | None:
    """Return the `_meta` of a message of this revision; None for older revisions."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) and VERSION_KEY in meta else None


class StatelessHandler:
    """Handler of this revision's messages for one toolset."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._sessions: dict[str, ToolSession] = {}
        name, version, self._instructions = identity(toolset)
        self._info = {SERVER_KEY: {"name": name, "version": version}}

    async def answer(
        self, message: dict[str, Any], *, headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Return the response to a request, None for a notification; check `headers` (lower case) against the body."""
        if "id" not in message:
            return None
        try:
            meta = self._checked(message, headers)
            result = await self._result(message, meta, headers or {})
        except Refusal as refusal:
            return refusal.reply(message.get("id"))
        except StillwebError as error:  # e.g. no browser on this machine: the other tools still work
            return Refusal(INTERNAL_ERROR, str(error)).reply(message.get("id"))
        except Exception as error:  # a bug in a tool, often a custom one: the client gets an error
            logging.getLogger(__name__).exception("a tool failed")
            return Refusal(INTERNAL_ERROR, str(error) or type(error).__name__).reply(message.get("id"))
        result["resultType"] = "complete"
        result["_meta"] = {**result.get("_meta", {}), **self._info}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _checked(self, message: dict[str, Any], headers: dict[str, str] | None) -> dict[str, Any]:
        meta = envelope(message)
        if meta is None or CAPABILITIES_KEY not in meta:
            raise Refusal(INVALID_PARAMS, f"params._meta must have {VERSION_KEY!r} and {CAPABILITIES_KEY!r}")
        asked = meta[VERSION_KEY]
        if headers is not None:
            method = message.get("method")
            pairs = [("mcp-protocol-version", asked), ("mcp-method", method)]
            if method in _NAMED:
                pairs.append(("mcp-name", message["params"].get(_NAMED[method])))
            for name, value in pairs:
                if headers.get(name) != value:
                    raise Refusal(HEADER_MISMATCH, f"{name} header does not match the request")
        if asked != REVISION:
            raise Refusal(
                UNSUPPORTED_VERSION,
                "Unsupported protocol version",
                {"supported": [REVISION], "requested": asked},
            )
        return meta

    async def _result(
        self, message: dict[str, Any], meta: dict[str, Any], headers: dict[str, str]
    ) -> dict[str, Any]:
        toolset = self._toolset
        method, params = message.get("method"), message.get("params", {})
        prompts = [p for contract in toolset.contracts for p in contract.prompts]
        lasting = {"cacheScope": "public", "ttlMs": 0}
        if method == "server/discover":
            offers: dict[str, Any] = {"tools": {"listChanged": False}}
            if prompts:
                offers["prompts"] = {"listChanged": False}
            found: dict[str, Any] = {**lasting, "capabilities": offers, "supportedVersions": [REVISION]}
            if self._instructions:
                found["instructions"] = self._instructions
            return found
        if method == "ping":
            return {}
        if method == "tools/list":
            return {**lasting, "tools": tool_descriptions(toolset)}
        if method == "prompts/list" and prompts:
            return {**lasting, "prompts": prompts}
        session = self._session(meta, headers)
        if method == "tools/call":
            return await self._call(session, params)
        if method == "prompts/get" and prompts:
            arguments = params.get("arguments") or {}
            if not isinstance(arguments, dict) or not all(isinstance(v, str) for v in arguments.values()):
                raise Refusal(INVALID_PARAMS, "prompts/get needs a name and an object of texts")
            try:
                return await prompt(toolset, session, str(params.get("name")), arguments)
            except ValueError as error:
                raise Refusal(INVALID_PARAMS, str(error)) from error
        raise Refusal(METHOD_NOT_FOUND, "Method not found", method)

    async def _call(self, session: ToolSession, params: dict[str, Any]) -> dict[str, Any]:
        tool, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            raise Refusal(INVALID_PARAMS, "tools/call needs a name and an object of arguments")
        if (code := self._toolset.unknown_code(tool)) is not None:
            raise Refusal(code, self._toolset.unknown(tool).text)
        result = await session.call(tool, arguments)
        contract = contract_of(self._toolset, tool)
        if result.is_error and contract is not None and contract.errors == "jsonrpc":
            raise Refusal(INTERNAL_ERROR, result.text, {META: result.meta})
        return call_result(result)

    def _session(self, meta: dict[str, Any], headers: dict[str, str]) -> ToolSession:
        client = meta.get(CLIENT_KEY)
        name = client.get("name") if isinstance(client, dict) else None
        key = str(meta.get(SESSION_KEY) or headers.get("stillweb-session") or name or "mcp")
        if key not in self._sessions:
            if len(self._sessions) >= MOST_SESSIONS:
                raise Refusal(INTERNAL_ERROR, f"more than {MOST_SESSIONS} sessions")
            self._sessions[key] = self._toolset.session(key)
        return self._sessions[key]

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


class HttpFront:
    """ASGI application in front of the SDK's: answers requests of this revision or later, and passes on all others."""

    def __init__(self, stateless: StatelessHandler, behind: Any) -> None:
        self._stateless = stateless
        self._behind = behind

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in scope.get("headers", ())}
        modern = headers.get("mcp-protocol-version", "") >= REVISION
        if scope["type"] != "http" or scope["method"] != "POST" or not modern:
            await self._behind(_with_types_accepted(scope, headers.get("accept", "*/*")), receive, send)
            return
        body = b""
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
        await _send(send, *await self._reply(body, headers))

    async def _reply(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any] | None]:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return 400, Refusal(-32700, "Parse error").reply(None)
        sound = isinstance(message, dict) and isinstance(message.get("method"), str)
        if not sound or message.get("jsonrpc") != "2.0":
            return 400, Refusal(INVALID_REQUEST, "Invalid request").reply(None)
        reply = await self._stateless.answer(message, headers=headers)
        if reply is None:
            return 202, None
        code = reply.get("error", {}).get("code")
        return STATUS.get(code, 200), reply


def _with_types_accepted(scope: Any, accepted: str) -> Any:
    """Return an ASGI scope whose Accept names each type that it accepts by a range: the SDK reads no ranges.

    A request without Accept accepts everything (RFC 9110, 12.5.1).
    """
    offers = [one.replace(" ", "").lower() for one in accepted.split(",")]
    ranges = {one.partition(";")[0] for one in offers if not re.search(r";q=0(\.0*)?(;|\Z)", one)}
    types = [
        one
        for one in ("application/json", "text/event-stream")
        if ranges & {"*/*", one.split("/")[0] + "/*", one}
    ]
    others = [field for field in scope.get("headers", ()) if field[0].lower() != b"accept"]
    return {**scope, "headers": [*others, (b"accept", ", ".join(types).encode())]}


async def _send(send: Any, status: int, reply: dict[str, Any] | None) -> None:
    data = b"" if reply is None else json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass")
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": data})


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


T = TypeVar("T")

TRANSPORTS = ("stdio", "http")
PATH = "/mcp"
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

    from stillweb.harness.servers.guarded import server_config

    logging.getLogger("mcp.server.streamable_http").addFilter(_worth_telling)
    listener = listen(host, port)
    config = server_config(app, level="warning", leave=2, lifespan="on")
    if ready is not None:
        ready(address_of(listener, token))
    await uvicorn.Server(config).serve(sockets=[listener])
