"""In-process transports: httpx and requests answered from a snapshot without a socket, as the gateway would.

    httpx.Client(transport=SnapshotTransport(answer))
    session.mount("https://", requests_adapter(answer)); session.mount("http://", …)

`answer` is a function from Request to Reply (`in_process`), the gateway's own code under a lock.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from typing import TYPE_CHECKING, Any

import httpx

from stillweb.proxy.serving.answering import Answerer
from stillweb.proxy.serving.hosting import VirtualHost
from stillweb.proxy.serving.hub import broken_host
from stillweb.proxy.serving.ledger import Ledger
from stillweb.proxy.serving.replies import Held, Reply
from stillweb.proxy.wire.addresses import host_of
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

Answer = Callable[[Request], Reply]


def in_process(
    snapshot: Snapshot,
    ledger: Ledger,
    session: str,
    accept: str,
    hosts: Mapping[str, VirtualHost] | None = None,
) -> Answer:
    """Answers the requests of one session; safe for threads. `hosts` as for `Gateway(virtual_hosts=…)`."""
    answerer = Answerer(snapshot, ledger, accept=accept, virtual_hosts=hosts)
    line = answerer.line(session)
    lock = threading.Lock()

    def locked(late: Callable[[], Reply | None]) -> Reply | None:
        with lock:
            return late()

    def answer(request: Request) -> Reply:
        name = host_of(request.url)
        host = answerer.virtual_hosts.get(name)
        if host is None:
            with lock:
                reply = answerer.answer(request, line)
            if (held := reply.held) is not None:
                reply.held = Held(held.seconds, lambda: locked(held.late))
            return reply
        try:
            made = host(request, line.name)
        except Exception as error:  # noqa: BLE001 -- others' code: the client hears of it, as from a gateway
            made = broken_host(name, error)
        with lock:
            return answerer.virtual(request, line, made)

    return answer


def body_of(reply: Reply) -> bytes:
    """The whole body of a reply."""
    return reply.body if reply.pieces is None else b"".join(reply.pieces())


def _leaves(held: Held, patience: Any) -> bool:
    """Whether a client of so many seconds' patience is one that leaves, which nobody has to wait for here."""
    return isinstance(patience, (int, float)) and patience < held.seconds


def _reason(reply: Reply) -> bytes:
    """The words of the status line."""
    return reply.wire_head.partition(b"\r\n")[0].split(b" ", 2)[2].strip()


def _request(method: str, url: str, headers: list[tuple[str, str]], body: bytes) -> Request:
    return Request(method.upper(), url.partition("#")[0], tuple(headers), body)


class SnapshotTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """For httpx.Client and httpx.AsyncClient."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers from the snapshot; a miss is a 504 that says so."""
        return self._respond(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The same."""
        return self._respond(request, await request.aread())

    def _respond(self, request: httpx.Request, body: bytes) -> httpx.Response:
        reply = self._answer(
            _request(request.method, str(request.url), list(request.headers.multi_items()), body)
        )
        if reply.held is not None:
            patience = request.extensions.get("timeout", {}).get("read")
            if _leaves(reply.held, patience):
                raise httpx.ReadTimeout("The read operation timed out", request=request)
            reply = reply.held.late() or reply
        return httpx.Response(
            reply.status,
            headers=list(reply.fields),
            content=body_of(reply),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": _reason(reply)},
        )


class _Read:
    """What stands where urllib3 keeps the response of http.client: its header, for cookies."""

    def __init__(self, fields: Headers) -> None:
        self.msg = Message()
        for name, value in fields:
            self.msg[name] = value

    def isclosed(self) -> bool:
        """No connection is behind it."""
        return True

    def close(self) -> None:
        """Nothing is open."""


def requests_adapter(answer: Answer) -> Any:
    """An adapter for `requests.Session.mount`; needs the package requests."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPHeaderDict, HTTPResponse

    class SnapshotAdapter(HTTPAdapter):
        """Answers from the snapshot; a miss is a 504 that says so."""

        def send(
            self, request: Any, stream: bool = False, timeout: Any = None, *_: Any, **__: Any
        ) -> requests.Response:
            body = request.body or b""
            if not isinstance(body, (str, bytes)):
                body = body.read() if hasattr(body, "read") else b"".join(body)
            data = body.encode() if isinstance(body, str) else body
            reply = answer(_request(request.method, request.url, list(request.headers.items()), data))
            if reply.held is not None:
                patience = timeout[1] if isinstance(timeout, tuple) else timeout
                if _leaves(reply.held, patience):
                    raise requests.ReadTimeout(f"Read timed out. (read timeout={patience})", request=request)
                reply = reply.held.late() or reply
            raw = HTTPResponse(
                body=io.BytesIO(body_of(reply)),
                headers=HTTPHeaderDict(reply.fields),
                status=reply.status,
                reason=_reason(reply).decode("latin-1"),
                preload_content=False,
                request_method=request.method,
                # requests takes cookies from the message that http.client has read, and from nowhere else
                original_response=_Read(reply.fields),  # type: ignore[arg-type]
            )
            return self.build_response(request, raw)

    return SnapshotAdapter()
