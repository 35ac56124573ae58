"""Origins under real-looking names, and recorders for them."""

import asyncio
import gzip
import hashlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import brotli
import httpx
import zstandard
from wsproto import ConnectionType, WSConnection
from wsproto.events import Event

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import Recorded
from tests.support.waiting import HANG

TEXT = ("A page that is held still says tomorrow what it said today. " * 400).encode()


PACKED = {
    "gzip": gzip.compress(TEXT, 3, mtime=1),
    "br": brotli.compress(TEXT, quality=5),
    "zstd": zstandard.ZstdCompressor(level=5).compress(TEXT),
}


async def pieces(count: int, size: int = 65536) -> AsyncIterator[bytes]:
    for number in range(count):
        yield hashlib.sha256(b"%d" % number).digest() * (size // 32)


async def ticks() -> AsyncIterator[bytes]:
    number = 0
    while True:
        yield b"data: %d\n\n" % number
        number += 1
        await asyncio.sleep(0.05)


class Gate:
    """Holds the answers of /slow back until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    async def body(self) -> AsyncIterator[bytes]:
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        yield b"late"


async def told() -> AsyncIterator[bytes]:
    """Yield a model's words and then nothing: the client closes the stream."""
    yield b'data: {"delta": "yes"}\n\n'
    yield b"data: [DO"
    yield b"NE]\n\n"
    await asyncio.Event().wait()


gate = Gate()


def answer(asked: Asked) -> Answer:
    path, _, query = asked.path.partition("?")
    if path.startswith("/packed/"):
        coding = path.rpartition("/")[2]
        return Answer(
            headers=[("Content-Type", "text/plain"), ("Content-Encoding", coding)], body=PACKED[coding]
        )
    match path:
        case "/echo":
            return Answer(headers=[("Content-Type", "application/octet-stream")], body=asked.body)
        case "/headers":
            return Answer(
                headers=[
                    ("Content-Type", "text/html; charset=latin-1"),
                    ("Set-Cookie", "theme=dark; Path=/"),
                    ("Set-Cookie", "lang=de"),
                    ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
                    ("Expires", "Thu, 01 Jan 1970 00:00:01 GMT"),
                    ("ETag", '"v1"'),
                    ("X-Odd", "caf\xe9"),
                ],
                body=b"<p>caf\xe9",
            )
        case "/many":
            return Answer(body=pieces(int(query)))
        case "/announced":
            return Answer(body=pieces(int(query)), length=int(query) * 65536)
        case "/cut-short":
            return Answer(headers=[("Content-Length", "5000")], body=b"x" * 1000, cut=1000)
        case "/cut-long":
            return Answer(body=pieces(40), length=40 * 65536, cut=10 * 65536)
        case "/cut-chunks":
            return Answer(body=pieces(40), cut=10 * 65536)
        case "/events":
            return Answer(headers=[("Content-Type", "text/event-stream")], body=ticks())
        case "/told":
            return Answer(headers=[("Content-Type", "text/event-stream")], body=told())
        case "/slow":
            return Answer(body=gate.body())
        case "/login":
            return Answer(
                headers=[
                    ("Set-Cookie", "sessionid=3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c; HttpOnly"),
                    ("Content-Type", "application/json"),
                ],
                body=b'{"access_token": "tok-9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s"}',
            )
        case "/account":
            return Answer(
                headers=[("Content-Type", "text/plain")], body=f"cookie {asked.header('Cookie')}".encode()
            )
        case "/empty":
            return Answer(204)
        case "/not-modified":
            return Answer(304, [("ETag", '"v1"')])
        case "/refused":
            return Answer(503, body=b"come back later")
    return Answer(headers=[("Content-Type", "text/plain")], body=f"you asked for {asked.path}".encode())


@dataclass
class Lab:
    """Origins under the names plain.example and demo.example, and what a recorder for them needs."""

    plain: Origin
    secure: Origin
    ca: Authority
    ours: Authority

    def recorder(self, writer: Writer, **options: object) -> Recorder:
        places = {
            "plain.example": ("127.0.0.1", self.plain.port),
            "demo.example": ("127.0.0.1", self.secure.port),
            "closed.example": ("127.0.0.1", 9),
        }
        return Recorder(
            writer,
            authority=self.ours,
            **{"upstream_ca": self.ca.certificate_path, "resolve": places, **options},  # type: ignore[arg-type]
        )

    @contextmanager
    def between(
        self, folder: Path, host: str, speak: Callable[[socket.socket], None]
    ) -> Iterator[tuple[Recorder, socket.socket]]:
        """A recorder into `folder`, and a client's connection to it. The host is `speak`, for one connection."""

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(HANG)
                speak(peer)

        with socket.create_server(("127.0.0.1", 0)) as server, Writer.open(folder) as writer:
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            with (
                self.recorder(writer, resolve={host: server.getsockname()}) as recorder,
                socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer,
            ):
                yield recorder, peer
            thread.join(HANG)


def heard(peer: socket.socket) -> Iterator[tuple[WSConnection, Event]]:
    """The events of a client that speaks a web socket to the host that a test speaks, with what answers are made by."""
    connection = WSConnection(ConnectionType.SERVER)
    while data := peer.recv(4096):
        connection.receive_data(data)
        for event in connection.events():
            yield connection, event


def tunnel(peer: socket.socket, place: str) -> None:
    """Asks for a tunnel to host:port, and gets it."""
    peer.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    assert b" 200 " in peer.recv(4096)


def client(recorder: Recorder, session: str = "default", *, http2: bool = True) -> httpx.Client:
    context = ssl.create_default_context(cafile=recorder.ca_path)
    return httpx.Client(
        proxy=recorder.proxy_url(session), verify=context, http2=http2, timeout=HANG, trust_env=False
    )


def by_path(found: list[Recorded]) -> dict[str, Recorded]:
    return {r.url.partition(".example")[2]: r for r in found}
