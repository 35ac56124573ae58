"""A real web server on loopback for the tests: HTTP/1.1 and HTTP/2, plain and over TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

from tests.support.waiting import HANG

Headers = list[tuple[str, str]]


@dataclass
class Asked:
    """A request as the origin got it."""

    method: str
    path: str  # with query
    headers: Headers
    body: bytes
    protocol: str

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass
class Answer:
    """`body` bytes are sent with a Content-Length, an iterator in chunks. `cut` closes after that many bytes."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    body: bytes | AsyncIterator[bytes] = b""
    length: int | None = None  # announced with an iterator, instead of chunks
    cut: int | None = None


Handler = Callable[[Asked], Answer | Awaitable[Answer]]


class Origin:
    """A server on a thread of its own; a context manager. `asked` lists what it was asked."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self.context = context
        self.asked: list[Asked] = []
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Origin:
        self._thread.start()
        assert self._ready.wait(HANG)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(HANG)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=self.context, limit=1 << 20)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self.loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=2))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")
        try:
            if connection is not None and connection.selected_alpn_protocol() == "h2":
                await _Http2(self, reader, writer).serve()
            else:
                await self._http1(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        result = self.handler(asked)
        return result if isinstance(result, Answer) else await result

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line = await reader.readline()
            if not line:
                return
            method, path, version = line.decode("latin-1").split()
            headers: Headers = []
            while (line := await reader.readline()).strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers.append((name, value.strip()))
            lower = {n.lower(): v for n, v in headers}
            body = b""
            if "chunked" in lower.get("transfer-encoding", ""):
                while size := int(await reader.readline(), 16):
                    body += await reader.readexactly(size)
                    await reader.readline()
                await reader.readline()
            else:
                left = int(lower.get("content-length", 0))
                parts = []
                while left:
                    parts.append(await reader.read(min(left, 1 << 20)))
                    left -= len(parts[-1])
                body = b"".join(parts)
            answer = await self.answer(Asked(method, path, headers, body, version))
            await self._send(writer, method, answer)
            if answer.cut is not None:
                return

    async def _send(self, writer: asyncio.StreamWriter, method: str, answer: Answer) -> None:
        headers = list(answer.headers)
        if isinstance(answer.body, bytes):
            if not any(n.lower() in ("content-length", "transfer-encoding") for n, _ in headers):
                headers.append(("Content-Length", str(len(answer.body))))
        elif answer.length is not None:
            headers.append(("Content-Length", str(answer.length)))
        else:
            headers.append(("Transfer-Encoding", "chunked"))
        head = f"HTTP/1.1 {answer.status} Fine\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers)
        writer.write(head.encode("latin-1") + b"\r\n")
        if method == "HEAD" or answer.status in (204, 304):
            await writer.drain()
            return
        if isinstance(answer.body, bytes):
            writer.write(answer.body if answer.cut is None else answer.body[: answer.cut])
            await writer.drain()
            return
        sent = 0
        async for chunk in answer.body:
            writer.write(chunk if answer.length is not None else b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
            # else a body without end keeps the loop from hearing that its peer has left, or that it is to stop
            await asyncio.sleep(0)
            sent += len(chunk)
            if answer.cut is not None and sent >= answer.cut:
                return
        if answer.length is None:
            writer.write(b"0\r\n\r\n")
            await writer.drain()


class _Http2:
    def __init__(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.origin, self.reader, self.writer = origin, reader, writer
        self.conn = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        )
        self.requests: dict[int, Asked] = {}
        self.window = asyncio.Event()
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        self.conn.initiate_connection()
        self.flush()
        try:
            while data := await self.reader.read(1 << 16):
                for event in self.conn.receive_data(data):
                    self.handle(event)
                self.flush()
                await self.writer.drain()
        finally:
            for task in self.tasks.values():
                task.cancel()

    def flush(self) -> None:
        self.writer.write(self.conn.data_to_send())

    def handle(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            fields = [(str(n), str(v)) for n, v in event.headers]
            pseudo = dict(f for f in fields if f[0].startswith(":"))
            headers = [f for f in fields if not f[0].startswith(":")]
            headers.insert(0, ("host", pseudo[":authority"]))
            self.requests[event.stream_id] = Asked(pseudo[":method"], pseudo[":path"], headers, b"", "HTTP/2")
        elif isinstance(event, h2.events.DataReceived):
            self.requests[event.stream_id].body += event.data
            self.conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            stream = event.stream_id
            self.tasks[stream] = self.origin.loop.create_task(self.reply(stream, self.requests.pop(stream)))
        elif isinstance(event, h2.events.StreamReset):
            if task := self.tasks.pop(event.stream_id, None):
                task.cancel()
        elif isinstance(event, h2.events.WindowUpdated):
            self.window.set()

    async def reply(self, stream: int, asked: Asked) -> None:
        answer = await self.origin.answer(asked)
        self.conn.send_headers(
            stream, [(":status", str(answer.status)), *((n.lower(), v) for n, v in answer.headers)]
        )
        sent = 0
        if isinstance(answer.body, bytes):
            await self.data(stream, answer.body)
        else:
            async for chunk in answer.body:
                await self.data(stream, chunk)
                sent += len(chunk)
                if answer.cut is not None and sent >= answer.cut:
                    self.conn.reset_stream(stream, 2)
                    self.flush()
                    return
        self.conn.end_stream(stream)
        self.flush()

    async def data(self, stream: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = min(self.conn.local_flow_control_window(stream), self.conn.max_outbound_frame_size)
            if room <= 0:
                self.window.clear()
                await self.window.wait()
                continue
            self.conn.send_data(stream, bytes(view[:room]))
            view = view[room:]
            self.flush()
            await self.writer.drain()
