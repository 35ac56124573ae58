"""Requests that a snapshot lacks, asked live through a recorder that keeps their answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpcore
import httpx

from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.http1 import field_bytes
from stillweb.proxy.replay.replies import Reply, failure
from stillweb.proxy.replay.response import BODILESS, HOP_BY_HOP
from stillweb.snapshots.identity.keys import opens_socket
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask
from stillweb.snapshots.words import whole_number

SWITCHED = 101
AT_ONCE = 64  # requests under way
STREAMED = 1 << 20  # bytes; a larger answer, or an event stream, is passed on as it comes
SOON = 1.0  # s after which an answer of unknown length is passed on as it comes
CONNECT_SECONDS = 60.0
ANSWER_SECONDS = 600.0  # a model may think for minutes


class LiveRequests:
    """A client that asks origins through a recorder. Thread-safe; a context manager, to be left before the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._context = ssl.create_default_context(cafile=str(recorder.ca_path))
        self._clients: dict[str, httpx.Client] = {}
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(AT_ONCE, "stillweb-live")

    def __enter__(self) -> LiveRequests:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()

    def submit(self, request: Request, session: str) -> Future[Reply]:
        return self._pool.submit(self.ask, request, session)

    def ask(self, request: Request, session: str) -> Reply:
        """Return the origin's answer to a session's request; a status of 502 if there is none."""
        parts = urlsplit(request.url)
        target = (parts.path or "/") + ("?" + parts.query if "?" in request.url else "")
        asked = httpx.Request(
            request.method,
            request.url,
            headers=[
                (field_bytes(n), field_bytes(v))
                for n, v in request.headers
                if n.lower() not in HOP_BY_HOP or opens_socket(request)
            ],
            content=request.body or None,
            extensions={"timeout": httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS).as_dict()},
        )
        asked.url = _AsItCame(asked.url, target.encode())
        try:
            answer = self._client(session).send(asked, stream=True)
            if answer.status_code == SWITCHED:
                return _upgraded(answer)
            size = whole_number(answer.headers.get("content-length", ""))
            fields = [
                (n.decode("latin-1"), v.decode("latin-1"))
                for n, v in answer.headers.raw
                if n.lower().decode("latin-1") not in HOP_BY_HOP
            ]
            bodiless = request.method == "HEAD" or answer.status_code in BODILESS
            streams = answer.headers.get("content-type", "").startswith("text/event-stream")
            passed_on = not bodiless and (streams or (size or 0) > STREAMED)
            pieces, came = answer.iter_raw(), bytearray()
            late = time.monotonic() + SOON
            while not passed_on and (piece := next(pieces, None)) is not None:
                came += piece
                passed_on = size is None and (len(came) > STREAMED or time.monotonic() > late)
            body = bytes(came)
            if passed_on:
                return Reply(
                    answer.status_code,
                    answer.reason_phrase,
                    tuple(fields),
                    pieces=lambda: _pieces(answer, body, pieces),
                    length=size,
                )
            answer.close()
        except httpx.HTTPError as error:
            where = mask(request).url
            why = next((why for url, why in reversed(self._recorder.failures) if url == where), "")
            reason = why or f"{type(error).__name__}: {error}"
            return failure(request, 502, "Not Answered", f"{where}: asked live: {reason}")
        if size is None and not bodiless:
            fields.append(("Content-Length", str(len(body))))
        return Reply(answer.status_code, answer.reason_phrase, tuple(fields), b"" if bodiless else body)

    def _client(self, session: str) -> httpx.Client:
        with self._lock:
            client = self._clients.get(session)
            if client is None:
                proxy = self._recorder.proxy_url(session)
                made = httpx.Client(proxy=proxy, verify=self._context, trust_env=False)
                client = self._clients[session] = self._stack.enter_context(made)
            return client


class _AsItCame(httpx.URL):
    """A URL whose path and query are sent as they came: httpx would write some characters in another way.

    httpx's own way, the extension `target`, changes the CONNECT to a proxy, too.
    """

    def __init__(self, url: httpx.URL, target: bytes) -> None:
        super().__init__(url)
        self._target = target

    @property
    def raw_path(self) -> bytes:
        return self._target


class _Socket:
    """The way from a client to the live server of its web socket."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def feed(self, data: bytes) -> None:
        broken = httpcore.NetworkError, httpcore.TimeoutException
        with contextlib.suppress(*broken):  # the reading side ends, too
            self._stream.write(data, ANSWER_SECONDS)

    def lost(self) -> None:
        raw: socket.socket = self._stream.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.shutdown(socket.SHUT_RDWR)  # ends the read on another thread


def _upgraded(answer: httpx.Response) -> Reply:
    """Return the handshake of a live web socket; what its server says comes in pieces."""
    stream: httpcore.NetworkStream = answer.extensions["network_stream"]

    def said() -> Iterator[bytes]:
        try:
            while data := stream.read(1 << 16):
                yield data
        except httpcore.NetworkError:
            return  # the connection broke: the client sees it end
        finally:
            answer.close()

    fields = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in answer.headers.raw)
    reply = Reply(SWITCHED, answer.reason_phrase, fields, pieces=said, length=None)
    reply.upgraded = _Socket(stream)
    return reply


def _pieces(answer: httpx.Response, came: bytes, more: Iterator[bytes]) -> Iterator[bytes]:
    try:
        if came:
            yield came
        yield from more
    except httpx.HTTPError as error:  # the client's connection then breaks off this answer, and no other
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    finally:
        answer.close()
