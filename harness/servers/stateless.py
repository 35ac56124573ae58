"""MCP revision 2026-07-28, which the installed SDK does not know: stateless requests.

There is no initialize and no session header; each request names its revision in `params._meta` and is answered on
its own. Modelled on the traffic of the official SDK 2.3.0. Such a client does not say which of its requests belong
together, but a snapshot with server states must know. The session is named in `_meta["stillweb/session"]` or in the
header `Stillweb-Session`; by default it is the client's name. Subscriptions and streamed notifications are not
implemented, because a snapshot has none.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from stillweb.harness.servers.mcp_words import (
    META,
    call_result,
    contract_of,
    identity,
    prompt,
    tool_descriptions,
)
from stillweb.harness.tools.toolset import ToolSession, Toolset
from stillweb.snapshots.errors import StillwebError

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
