"""Access checks and limits (size, nesting, time) for our HTTP servers: ASGI applications served by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qs

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stillweb.harness._parsing import no_number
from stillweb.proxy.net.own_pages import page_fields, same_token, why_refused
from stillweb.proxy.replay.http1 import PATIENCE, has_bare_break

MOST_BODY = 4 << 20  # most bytes of a request's body
DEEPEST = 64  # most levels of a JSON request
MOST_CONNECTIONS = 512
IDLE = 75  # keep-alive seconds: longer than clients', so that none is closed while it sends a request
LINGER = 1.0  # seconds for which the rest of a refused request is read
_OPENING = (b"[", b"{")
_CR_ALONE = re.compile(rb"\r[^\n]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class RequestGuard:
    """ASGI middleware that refuses requests with a wrong host, origin or token, or a too large body.

    `names` are the allowed hosts in addition to IP addresses and localhost. With a `token` every request must have
    it, as `Authorization: Bearer …` or as `?token=…`. `pages=False` adds no header fields to the answers. `opaque=True`
    allows the origin `null` of sandboxed frames: for an application whose paths hold a token of their own.
    """

    def __init__(
        self,
        app: Any,
        *,
        names: Collection[str] = (),
        token: str = "",
        most: int = MOST_BODY,
        pages: bool = True,
        opaque: bool = False,
    ) -> None:
        self._opaque = opaque
        self._app, self._names, self._token, self._most, self._pages = app, names, token, most, pages

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        origin = fields.get("origin")
        if self._opaque and origin == "null":
            origin = None
        if why := why_refused(fields.get("host"), origin, self._names):
            await answer(send, 403, why)
        elif self._token and not self._proven(scope, fields):
            await answer(
                send, 401, "the token is missing or wrong. Use the whole address that the server printed"
            )
        elif (body := await self._body(receive, send, fields.get("content-length", ""))) is not None:
            if why := _unreadable(body, fields):
                await answer(send, 400, why)
            else:
                await self._app(scope, _given(body, receive), self._with_fields(send))

    def _proven(self, scope: Any, fields: dict[str, str]) -> bool:
        kind, _, given = fields.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        return same_token(given.strip(), self._token)

    async def _body(self, receive: Any, send: Any, length: str) -> bytes | None:
        """Return the whole body; None if the request was refused (413, 408) or the client disconnected."""
        body = bytearray()
        why = f"the request is too large. Send at most {self._most:,} bytes"
        if length.isdecimal() and int(length) > self._most:
            await answer(send, 413, why, receive)
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    event = await receive()
                    if event["type"] == "http.disconnect":
                        return None
                    body += event.get("body", b"")
                    if len(body) > self._most:
                        await answer(send, 413, why, receive)
                        return None
                    if not event.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            await answer(send, 408, "the request did not arrive in time. Send it again")
            return None

    def _with_fields(self, send: Any) -> Any:
        async def sent(event: Any) -> None:
            if event["type"] == "http.response.start" and self._pages:
                own = {name.lower() for name, _ in event["headers"]}
                more = [(n.lower().encode(), v.encode()) for n, v in page_fields()]
                event = {**event, "headers": [*event["headers"], *(f for f in more if f[0] not in own)]}
            await send(event)

        return sent


def _given(body: bytes, receive: Any) -> Any:
    """Return an ASGI `receive` that gives the body which was already read."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return left.pop() if left else await receive()

    return received


def _unreadable(body: bytes, fields: dict[str, str]) -> str:
    """Return why a JSON body is refused before the application reads it; "" for others, and for what is not JSON."""
    if "json" not in fields.get("content-type", ""):
        return ""
    deep = f"the request is nested more than {DEEPEST} deep. Send a flatter one"
    try:
        level = [json.loads(body, parse_constant=no_number)]
        if _SURROGATE.search(body):
            json.dumps(level, ensure_ascii=False).encode()  # no answer could name half of a pair
    except RecursionError:
        return deep
    except json.JSONDecodeError:
        return ""  # the application will refuse it
    except ValueError:  # text that is no UTF-8, or what no JSON holds
        return "the request's JSON can't be read. Send UTF-8, and numbers of at most 4,300 digits"
    if sum(map(body.count, _OPENING)) <= DEEPEST:
        return ""
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return deep if level else ""


async def answer(send: Any, status: int, why: str, receive: Any = None) -> None:
    """Answer a request with one sentence and close its connection.

    With `receive`, read the rest of the request first, for at most LINGER seconds: a client that is still sending
    would see a broken connection instead of the answer.
    """
    body = f"stillweb: {why}.\n".encode()
    fields = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *page_fields(),
    ]
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": receive is not None})
    if receive is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b""})


class _Timely(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, with a time limit for request heads and a check for bare CR or LF."""

    _late: asyncio.TimerHandle | None = None
    _last = b""  # the last byte received

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(over=True)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.conn.their_state
        super().data_received(data)
        after = self.conn.their_state
        bare = before is after is h11.IDLE and _CR_ALONE.search(self._last + data)
        # in a body, the unparsed bytes are the beginning of a chunk-size line
        if bare or (after is h11.SEND_BODY and has_bare_break(self.conn.trailing_data[0])):
            self.send_400_response("Lines must end in CR LF.")  # h11 would wait for more bytes
        self._last = data[-1:]
        self._wait(over=after is not h11.IDLE)

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request; an application that waits for its rest gets a disconnect."""
        if self.cycle is not None and not self.cycle.response_complete:
            started, self.cycle.disconnected = self.cycle.response_started, True
            self.cycle.message_event.set()
            if started:
                self.transport.close()
                return
        super().send_400_response(msg)

    def _wait(self, *, over: bool = False) -> None:
        if over and self._late is not None:
            self._late.cancel()
            self._late = None
        elif not over and self._late is None:
            self._late = self.loop.call_later(PATIENCE, self.transport.close)


def server_config(
    app: Any, *, level: str = "error", leave: int = 1, idle: int = IDLE, **more: Any
) -> uvicorn.Config:
    """Return uvicorn's settings for a guarded application, which may take `leave` seconds to shut down."""
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    return uvicorn.Config(
        app,
        http=_Timely,
        ws="none",
        log_level=level,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=idle,
        timeout_graceful_shutdown=leave,
        **more,
    )


_ANSWERED = ("Invalid HTTP request", "Exceeded concurrency limit", "timeout graceful shutdown exceeded")


def _worth_telling(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's records of requests that were refused, or were under way when the server was ended."""
    ended = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not (ended or any(words in record.getMessage() for words in _ANSWERED))
