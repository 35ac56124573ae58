"""In-process transports: httpx and requests answered from a snapshot without a socket, like the gateway does.

    httpx.Client(transport=SnapshotTransport(answer))
    session.mount("https://", requests_adapter(answer)); session.mount("http://", …)

`answer` is a function from Request to Reply (see `in_process`): the gateway's own code under a lock.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from typing import TYPE_CHECKING, Any

import httpx

from stillweb.proxy.net.addresses import host_of
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.hosting import VirtualHost
from stillweb.proxy.replay.hub import broken_host
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.replies import DelayedReply, Reply
from stillweb.snapshots.evidence.confidence import SERVED
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from stillweb.proxy.replay.faults import Faults
    from stillweb.snapshots.snapshot import Snapshot

CUT = "peer closed connection without sending complete message body"
Answer = Callable[[Request], Reply]


def in_process(
    snapshot: Snapshot,
    ledger: Ledger,
    session: str,
    accept: str,
    hosts: Mapping[str, VirtualHost] | None = None,
    faults: Faults | None = None,
    min_confidence: float = SERVED,
) -> Answer:
    """Return a thread-safe function that answers one session's requests; `hosts` as in `Gateway(virtual_hosts=…)`."""
    answerer = Answerer(
        snapshot, ledger, accept=accept, min_confidence=min_confidence, virtual_hosts=hosts, faults=faults
    )
    state = answerer.state(session)
    lock = threading.Lock()

    def locked(late: Callable[[], Reply | None]) -> Reply | None:
        with lock:
            return late()

    def answer(request: Request) -> Reply:
        name = host_of(request.url)
        host = answerer.virtual_hosts.get(name)
        if host is None:
            with lock:
                reply = answerer.answer(request, state)
            if (held := reply.held) is not None:
                reply.held = held._replace(make=lambda: locked(held.make))
            return reply
        with lock:
            fault = answerer.fault_for(request, state)
            reply_of_fault = answerer.fault_reply(request, state, fault) if fault is not None else None
        if reply_of_fault is not None:
            return reply_of_fault
        try:
            made = host(request, state.name)
        except Exception as error:  # noqa: BLE001 -- custom code: the client gets an error, as from a gateway
            made = broken_host(name, error)
        with lock:
            return answerer.virtual(request, state, made, fault)

    return answer


def body_of(reply: Reply) -> bytes:
    return reply.body if reply.pieces is None else b"".join(reply.pieces())


def _leaves(held: DelayedReply, patience: Any) -> bool:
    """Return True if a client with this time-out (seconds) gives up before the reply; no need to wait for it."""
    return isinstance(patience, (int, float)) and patience < held.seconds


def _reason(reply: Reply) -> bytes:
    """Return the reason phrase of the status state."""
    return reply.wire_head.partition(b"\r\n")[0].split(b" ", 2)[2].strip()


def _request(method: str, url: str, headers: list[tuple[str, str]], body: bytes) -> Request:
    return Request(method.upper(), url.partition("#")[0], tuple(headers), body)


class SnapshotTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Transport for httpx.Client and httpx.AsyncClient; a miss is answered by a 504."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._respond(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._respond(request, await request.aread())

    def _respond(self, request: httpx.Request, body: bytes) -> httpx.Response:
        reply = self._answer(
            _request(request.method, str(request.url), list(request.headers.multi_items()), body)
        )
        if reply.held is not None:
            patience = request.extensions.get("timeout", {}).get("read")
            if _leaves(reply.held, patience):
                raise httpx.ReadTimeout("The read operation timed out", request=request)
            if reply.held.reset:
                raise httpx.ReadError("Connection reset by peer", request=request)
            reply = reply.held.make() or reply
        if reply.cut:
            raise httpx.RemoteProtocolError(CUT, request=request)
        return httpx.Response(
            reply.status,
            headers=list(reply.fields),
            stream=httpx.ByteStream(
                body_of(reply)
            ),  # unread, as over the network: `elapsed` and `iter_raw` need that
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": _reason(reply)},
        )


class _Read:
    """Stand-in for the http.client response that urllib3 keeps; requests reads cookies from its header."""

    def __init__(self, fields: Headers) -> None:
        self.msg = Message()
        for name, value in fields:
            self.msg[name] = value

    def isclosed(self) -> bool:
        """Return True: there is no connection."""
        return True

    def close(self) -> None:
        """Do nothing: there is no connection."""


def requests_adapter(answer: Answer) -> Any:
    """Return an adapter for `requests.Session.mount`; needs the package requests."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPHeaderDict, HTTPResponse

    class SnapshotAdapter(HTTPAdapter):
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
                if reply.held.reset:
                    raise requests.ConnectionError("Connection reset by peer", request=request)
                reply = reply.held.make() or reply
            if reply.cut:
                raise requests.exceptions.ChunkedEncodingError(CUT, request=request)
            raw = HTTPResponse(
                body=io.BytesIO(body_of(reply)),
                headers=HTTPHeaderDict(reply.fields),
                status=reply.status,
                reason=_reason(reply).decode("latin-1"),
                preload_content=False,
                request_method=request.method,
                # requests reads cookies only from the message that http.client parsed
                original_response=_Read(reply.fields),  # type: ignore[arg-type]
            )
            return self.build_response(request, raw)

    return SnapshotAdapter()
