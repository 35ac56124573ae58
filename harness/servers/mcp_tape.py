"""Tape of an MCP server: each call is an exchange of a snapshot, at `http://NAME.invalid/METHOD[/TOOL or PROMPT]`.

So calls are matched as requests are: by canonical arguments, by what the session did before, with a confidence, and
with an explanation of each miss. A call that only reads has the method QUERY (RFC draft httpbis-safe-method-w-body),
any other POST. The body of the response holds `result` or `error`, and the notifications that came with it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import rfc8785

from stillweb.harness._parsing import strict_json
from stillweb.harness.servers.mcp import META
from stillweb.harness.tools.reader_common import miss_response
from stillweb.harness.tools.store import Store, Visit
from stillweb.snapshots._os.signals import handle_signals
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import DamagedInput, StillwebError, UsageError
from stillweb.snapshots.evidence import SERVED
from stillweb.snapshots.extras import require
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from stillweb.proxy.record.redaction import ExchangeRedactor
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.writer import Writer

SERVER = "urn:stillweb:mcp:"  # a metadata record of a server: its software, the command that started it
# JSON-RPC codes of a miss, of a snapshot that can't be read, of a method that the server does not have, and of arguments
# that no tape can hold
MISSED, INTERNAL, UNKNOWN, INVALID = -32000, -32603, -32601, -32602
LONGEST = 32 << 20  # bytes of a line that is read; longer ones are passed on unread
_BRIDGED = "STILLWEB_MCP_BRIDGE"  # variable with the URL and the headers of a server that speaks HTTP
BRIDGE_LEAVES = 30.0  # the same for a bridge, which may still wait for an answer
LEAVE = 2.0  # seconds in which the server ends once its standard input is closed
_INFO = "io.modelcontextprotocol/serverInfo"
_JSON = (("Content-Type", "application/json"),)
_LISTS = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}
_READS = re.compile(
    r"initialize|server/discover|completion/complete|prompts/get|resources/read|\w+(/\w+)*/list"
)


def request_of(server: str, method: str, params: dict[str, Any], *, reads: bool = False) -> Request:
    """Return a call as an HTTP request. What tells of the client alone (`_meta`, `initialize`) is left out."""
    members = {name: value for name, value in params.items() if name != "_meta" and value is not None}
    if method == "initialize":
        members = {}
    path = method
    if method in ("tools/call", "prompts/get"):
        members["arguments"] = members.get("arguments") or {}
        path = f"{method}/{quote(str(members.get('name', '')), safe='')}"
    safe = reads or _READS.fullmatch(method) is not None
    if method in ("initialize", "server/discover") or method.endswith("/list"):
        # a site of its own: no call changes what a server says of itself, unless it was recorded so
        server += "-about"
    fields = (("Host", f"{server}.invalid"), *_JSON)
    return Request(
        "QUERY" if safe else "POST", f"http://{server}.invalid/{path}", fields, rfc8785.dumps(members)
    )


def slug(name: str) -> str:
    """Return a server's name as a host name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "server"


# -- recording


@dataclass
class _Call:
    """A request that the server has not answered yet."""

    message: dict[str, Any]
    begin: int
    session: str
    started: datetime
    notes: list[dict[str, Any]] = field(default_factory=list)
    asked: str = ""  # what the server asked its client meanwhile


class Recording:
    """Observer of the messages between a client and a server, which stores each answered call. Thread-safe."""

    def __init__(
        self, writer: Writer, redact: ExchangeRedactor, command: Sequence[str], name: str = ""
    ) -> None:
        self._writer, self._redact, self._command = writer, redact, command
        self._name, self._named = slug(name or "server"), bool(name)
        self.session = next(s for n in itertools.count(1) if not writer.last_event(s := f"mcp-{n}"))
        self._calls: dict[Any, _Call] = {}
        self._lock = threading.Lock()
        self._reading: set[str] = set()  # tools that say that they only read
        self.stored = 0
        self.left: list[str] = []  # calls that were not stored, and why

    def sent(self, line: bytes) -> None:
        """Note a line from the client."""
        for message in _messages(line):
            if isinstance(message.get("method"), str) and "id" in message and message["method"] != "ping":
                with self._lock:
                    begin = self._writer.event(self.session)
                    self._calls[message["id"]] = _Call(message, begin, self.session, datetime.now(UTC))

    def received(self, line: bytes) -> Iterator[bytes]:
        """Note a line from the server; yield requests to send to it, which ask for its lists."""
        for message in _messages(line):
            with self._lock:
                if isinstance(message.get("method"), str):
                    self._note_answer(message)
                elif (call := self._calls.pop(message.get("id"), None)) is not None:
                    try:
                        self._store(call, message)
                    # half a surrogate pair, say, or a number that JSON can't name
                    except ValueError as error:
                        self._leave(call, f"can't be kept: {error}")
                    if call.message["method"] == "initialize":
                        yield from self._ask(_object(message.get("result")))

    def end(self) -> None:
        """Note the calls that have no answer which could be read."""
        with self._lock:
            for call in self._calls.values():
                self._leave(call, "has no answer that could be read")

    def _leave(self, call: _Call, why: str) -> None:
        name = _object(call.message.get("params")).get("name", "")
        self.left.append(f"{call.message['method']} {name}".strip() + f": {why}")

    def asks(self, line: bytes) -> bool:
        """Return True for an answer to a request of ours, which the client must not see."""
        return any(str(message.get("id", "")).startswith("stillweb-") for message in _messages(line))

    def _note_answer(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            token = _object(message.get("params")).get("progressToken")
            for call in self._calls.values():
                if token is None or token == _token(call.message):
                    call.notes.append(message)
        elif message["method"] not in ("ping", "roots/list"):
            for call in self._calls.values():
                call.asked = message["method"]

    def _ask(self, result: dict[str, Any]) -> Iterator[bytes]:
        for member, methods in _LISTS.items():
            for method in methods if member in _object(result.get("capabilities")) else ():
                id_ = f"stillweb-{method}"
                message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {}}
                session = f"{self.session}-lists"
                self._calls[id_] = _Call(message, self._writer.event(session), session, datetime.now(UTC))
                yield json.dumps(message).encode() + b"\n"

    def _store(self, call: _Call, answer: dict[str, Any]) -> None:
        method, params = call.message["method"], _object(call.message.get("params"))
        result = answer.get("result")
        if isinstance(result, dict):
            # the second as revision 2026-07-28 tells it, which has no `initialize`
            info = result.get("serverInfo") or _object(result.get("_meta")).get(_INFO)
            if isinstance(info, dict) and not self._named:
                self._name, self._named = slug(str(info.get("name", ""))), True
            if method in ("initialize", "server/discover") and info is not None:
                header = {"server": info, "command": [Path(self._command[0]).name, *self._command[1:]]}
                self._writer.metadata(SERVER + self._name, self._redact_value(header))
            tools = result.get("tools") if method == "tools/list" else None
            for tool in map(_object, tools if isinstance(tools, list) else ()):
                if _object(tool.get("annotations")).get("readOnlyHint"):
                    self._reading.add(str(tool.get("name")))
        if call.asked:
            self._leave(call, f"the server sent its client a request ({call.asked})")
            return
        request = request_of(self._name, method, params, reads=str(params.get("name")) in self._reading)
        body: dict[str, Any] = {name: answer[name] for name in ("result", "error") if name in answer}
        if call.notes:
            body["notifications"] = call.notes
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        fields = (*_JSON, ("Content-Length", str(len(data))))
        end = self._writer.event(call.session)
        self._writer.exchange(
            self._redact.exchange(
                Exchange(request, 200, "OK", fields, data, call.started, call.session, call.begin, end)
            )
        )
        self.stored += 1

    def _redact_value(self, value: Any) -> Any:
        return json.loads(self._redact.redact_known(json.dumps(value).encode()))


def _messages(line: bytes) -> list[dict[str, Any]]:
    """Return the JSON-RPC messages of a line; none of a line that is none, which is passed on as it is."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [
        one
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict) and isinstance(one.get("id"), str | int | float | None)
    ]


def _object(value: Any) -> dict[str, Any]:
    """Return a member that should be an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def _token(message: dict[str, Any]) -> Any:
    return _object(_object(message.get("params")).get("_meta")).get("progressToken")


def record_url(
    path: Path, url: str, headers: Sequence[tuple[str, str]] = (), name: str = ""
) -> tuple[Recording, int]:
    """Record a server that speaks HTTP at `url` as `record` does, by way of a bridge to standard input and output.

    `headers` are sent with every request, and not kept. Raises UsageError for what is not an http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(f"{url}: is not an http(s) URL of an MCP server; give credentials by --header")
    require("mcp")  # before the bridge is started, which loads it
    start = "from stillweb.harness.servers.mcp_tape import bridge; bridge()"
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    # secrets in the URL's query and in headers: other users see the arguments of a process, but not its environment
    settings = {_BRIDGED: json.dumps({"url": url, "headers": dict(headers)})}
    return record(
        path, [sys.executable, "-c", start], name, shown=[shown], settings=settings, leave=BRIDGE_LEAVES
    )


def bridge() -> None:
    """Pass messages between standard input and output and the server at the URL in this process's environment."""
    import anyio
    import httpx
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage

    settings = json.loads(os.environ.pop(_BRIDGED))
    failed: list[str] = []  # the SDK logs failures, and goes on

    async def pump() -> None:
        scope = anyio.CancelScope()

        def fail(why: str) -> None:
            failed.append(why)
            scope.cancel()

        class Watched(httpx.AsyncClient):
            async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
                try:
                    response = await super().send(request, **options)
                except httpx.HTTPError as error:
                    fail(str(error) or type(error).__name__)
                    raise
                if request.method == "POST" and response.status_code >= 400:
                    fail(f"status {response.status_code}")
                return response

        async def answers(read: Any) -> None:
            async for message in read:
                if isinstance(message, Exception):
                    fail(str(message))
                    continue
                sys.stdout.write(message.message.model_dump_json(by_alias=True, exclude_none=True) + "\n")
                sys.stdout.flush()

        timeout = httpx.Timeout(30, read=300)
        with scope:
            async with (
                Watched(headers=settings["headers"], follow_redirects=True, timeout=timeout) as http,
                streamable_http_client(settings["url"], http_client=http) as (read, write, _),
                anyio.create_task_group() as group,
            ):
                group.start_soon(answers, read)
                async for line in anyio.wrap_file(sys.stdin):
                    await write.send(SessionMessage(JSONRPCMessage.model_validate_json(line)))
                await anyio.sleep(LEAVE / 2)  # answers that are still on their way
                group.cancel_scope.cancel()

    try:
        anyio.run(pump)
    except* httpx.HTTPError as group:  # the SDK raises some of them, too
        failed.append(str(group))
    if failed:
        where = settings["url"].partition("?")[0]
        sys.stderr.write(
            f"stillweb: {where}: the MCP server can't be reached: {failed[0]}. Check URL and --header\n"
        )
        sys.stderr.flush()
        os._exit(1)  # a thread may still wait for standard input


def record(
    path: Path,
    command: Sequence[str],
    name: str = "",
    *,
    shown: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    leave: float = LEAVE,
) -> tuple[Recording, int]:
    """Pass lines between standard input and output and the server `command`, and store its calls in a snapshot.

    `shown` is what the snapshot tells of the command, by default the command; `settings` are variables for it.
    Return the recording and the server's exit code. Raises UsageError if the server can't be started.
    """
    from stillweb.proxy.record.redaction import ExchangeRedactor
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.secrets.keystore import state_dir
    from stillweb.snapshots.secrets.redact import Redactor
    from stillweb.snapshots.writer import Writer

    with Writer.open(
        path, provenance=provenance_now(f"MCP server {Path((shown or command)[0]).name}", {})
    ) as writer:
        redactor = Redactor.for_snapshot(writer.path, state_dir(), keep=True)
        recording = Recording(writer, ExchangeRedactor(redactor, writer.path), shown or command, name)
        try:
            server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(settings or {})}
            )
        except OSError as error:
            raise UsageError(f"{command[0]}: can't be started: {error.strerror}") from error
        assert server.stdin is not None
        assert server.stdout is not None
        to_server, from_server = server.stdin, server.stdout
        writing = threading.Lock()

        def give(lines: Iterator[bytes]) -> None:
            for line in lines:
                with writing:
                    to_server.write(line)
                    to_server.flush()

        def forward() -> None:
            with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as file:
                for line, whole in _lines(file):
                    if whole:
                        recording.sent(line)
                    give(iter([line]))
            to_server.close()
            try:
                server.wait(leave)
            except subprocess.TimeoutExpired:
                server.terminate()

        with _ended_with(server):
            threading.Thread(target=_quietly(forward), daemon=True).start()
            for line, whole in _lines(from_server):
                ours = whole and recording.asks(line)
                more = list(recording.received(line)) if whole else []
                if not ours:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
                give(iter(more))
            recording.end()
            return recording, server.wait()


def _lines(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield lines, and whether each is whole: one of more than LONGEST bytes comes in parts."""
    inside = False
    while part := file.readline(LONGEST):
        ended = part.endswith(b"\n") or len(part) < LONGEST
        yield part, ended and not inside
        inside = not ended


def _quietly(work: Callable[[], None]) -> Callable[[], None]:
    """Return `work` for a thread that ends with the pipe to the server."""

    def run() -> None:
        try:
            work()
        except (BrokenPipeError, ValueError):  # the server has ended; its exit code is told
            return

    return run


@contextmanager
def _ended_with(server: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the server when this process is asked to end."""

    def end(number: int, _: object) -> None:
        server.send_signal(number)

    try:
        with handle_signals({name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}, end):
            yield
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


# -- replay


class Tape:
    """The calls of one server in a snapshot. `server` names it where the snapshot has several."""

    def __init__(
        self, snapshot: Snapshot, server: str = "", *, accept: str = "rule", min_confidence: float = SERVED
    ) -> None:
        names = [uri.removeprefix(SERVER) for uri in snapshot.metadata_addresses(SERVER)]
        where = ", ".join(snapshot.paths)
        if not names:
            raise UsageError(
                f"{where}: holds no MCP server. Record one: stillweb mcp-record -o SNAP -- SERVER"
            )
        if not server and len(names) > 1:
            raise UsageError(f"{where}: holds several MCP servers. Choose with --server: {', '.join(names)}")
        if server and server not in names:
            raise UsageError(f"{where}: holds no MCP server {server}; known are {', '.join(names)}")
        self.name = server or names[0]
        self._store = Store(snapshot, accept=accept, min_confidence=min_confidence)
        self._numbers = itertools.count(1)
        start = f"http://{self.name}.invalid/tools/call/"
        self._reading = {
            c.url for c in snapshot.captures() if c.method == "QUERY" and c.url.startswith(start)
        }
        self.calls = self.misses = 0

    def session(self) -> Visit:
        """Return a new client, before any call."""
        return self._store.session(f"mcp-{next(self._numbers)}")

    def answer(self, visit: Visit, id_: Any, method: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the notifications and the answer to a call. A miss is an error that says what came nearest."""
        head = {"jsonrpc": "2.0", "id": id_}
        if method == "ping":
            yield {**head, "result": {}}
            return
        self.calls += 1
        try:
            request = request_of(self.name, method, params)
        except ValueError as error:  # a number that JSON can't name, say
            self.misses += 1
            yield {**head, "error": {"code": INVALID, "message": f"the messages can't be recorded: {error}"}}
            return
        if request.url in self._reading:
            request = replace(request, method="QUERY")
        try:
            found = visit.look(request)
            if found.capture is None and method == "server/discover":  # the tape is of an older revision
                yield {**head, "error": {"code": UNKNOWN, "message": "Method not found"}}
                return
            if found.capture is None:
                self.misses += 1
                text = miss_response(request, found).body.decode().strip()
                yield {**head, "error": {"code": MISSED, "message": text, "data": {META: found.meta()}}}
                return
            body = _body_of(found.capture, visit.read(found).body)
        except StillwebError as error:
            yield {**head, "error": {"code": INTERNAL, "message": str(error)}}
            return
        token = _object(params.get("_meta")).get("progressToken")
        for note in body.pop("notifications", ()):
            if "progressToken" in _object(note.get("params")):
                if token is None:
                    continue
                note["params"]["progressToken"] = token
            yield note
        if isinstance(body.get("result"), dict) and method in ("tools/call", "resources/read", "prompts/get"):
            result = body["result"]
            result["_meta"] = {**_object(result.get("_meta")), META: found.meta()}
        yield {**head, **body}


def _body_of(capture: Capture, data: bytes) -> dict[str, Any]:
    """Return what a tape holds of an answer. Raises DamagedInput for what no client of MCP can read."""
    from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

    try:
        body = strict_json(data.decode())
        members = {name: body[name] for name in ("result", "error") if name in body}
        notes = [{"jsonrpc": "2.0", **note} for note in body.get("notifications", ())]
        if len(members) != 1 or any("id" in note for note in notes):
            raise ValueError("a response must be a result or an error, and no request")
        answered = JSONRPCError if "error" in members else JSONRPCResponse
        for one in (
            answered(jsonrpc="2.0", id=0, **members),
            *(JSONRPCNotification.model_validate(note) for note in notes),
        ):
            one.model_dump_json()  # half a surrogate pair can't be sent
    except (ValueError, TypeError, AttributeError) as error:
        why = str(error).partition("\n")[0]
        raise DamagedInput(
            f"{capture.filename}: at {capture.offset}: the recorded answer is not JSON-RPC: {why}"
        ) from error
    return {**members, "notifications": notes}


def make_server(tape: Tape) -> Server[Any, Any]:
    """Return a server of the SDK that answers each connection from the tape."""
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.shared.message import ServerMessageMetadata, SessionMessage
    from mcp.types import JSONRPCMessage, JSONRPCRequest

    class Replayed(Server[Any, Any]):
        async def run(self, read: Any, write: Any, *rest: Any, **more: Any) -> None:  # type: ignore[override]
            visit = tape.session()
            # a client's DELETE, or the server's end, closes the streams
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with read, write:
                    async for item in read:
                        asked = getattr(getattr(item, "message", None), "root", None)
                        if not isinstance(asked, JSONRPCRequest):
                            continue
                        for one in tape.answer(visit, asked.id, asked.method, asked.params or {}):
                            message = JSONRPCMessage.model_validate(one)
                            about = (
                                None if "id" in one else ServerMessageMetadata(related_request_id=asked.id)
                            )
                            await write.send(SessionMessage(message, about))

    return Replayed(tape.name)


def serve(
    tape: Tape,
    transport: str,
    port: int,
    *,
    host: str = "127.0.0.1",
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a tape until the client disconnects (stdio) or the process is asked to end (http)."""
    import anyio

    from stillweb.harness.servers.mcp import PATH, serve_app

    server = make_server(tape)
    if transport == "stdio":

        async def stdio() -> None:
            from mcp.server.stdio import stdio_server

            from stillweb.harness.servers.stdin import Lines

            lines: Any = Lines(sys.stdin.fileno())
            async with stdio_server(lines) as (read, write):
                await server.run(read, write, server.create_initialization_options())

        anyio.run(stdio)
        return

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    from stillweb.harness.servers.guarded import RequestGuard

    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await manager.handle_request(scope, receive, send)

    app = Starlette(
        routes=[Route(path, endpoint=Endpoint()) for path in (PATH, f"{PATH}/")],
        middleware=[Middleware(RequestGuard, token="", names={host})],
        lifespan=lifespan,
    )
    anyio.run(serve_app, app, host, port, ready)
