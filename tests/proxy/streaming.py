"""An origin on loopback whose page talks over a web socket and an event stream, with messages that time brings."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Request, TextMessage

from tests.support.waiting import HANG

PAGE = """<!DOCTYPE html><title>Live</title><h1>Live</h1><ol id=said></ol><ol id=news></ol><button>More</button><p id=end></p>
<script>
const put = (list, text) => { const li = document.createElement("li"); li.textContent = text; list.append(li); };
const socket = new WebSocket(`ws://${location.host}/talk?room=1`);
socket.onopen = () => { put(said, "open"); socket.send(JSON.stringify({ask: "list", at: Date.now(), id: crypto.randomUUID()})); };
socket.onmessage = (e) => put(said, e.data);
socket.onclose = (e) => { end.textContent = `closed ${e.code} ${e.reason}`; };
document.querySelector("button").onclick = () => socket.send("more");
const source = new EventSource("/events");
fetch("/said");
source.onmessage = (e) => put(news, `${e.lastEventId} ${e.data}`);
source.addEventListener("special", (e) => put(news, `special ${e.data}`));
</script>"""


class Said:
    """Both streams have said what they say of themselves: only then is /said answered, so that a view waits for it.

    `thinking` is waited for before the list is said.
    """

    def __init__(self, page: str, thinking: threading.Event | None) -> None:
        self.page, self.thinking = page, thinking
        self.talk, self.news = asyncio.Event(), asyncio.Event()


async def _talk(said: Said, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
    connection = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
    connection.receive_data(head)

    def say(text: str) -> None:
        writer.write(connection.send(TextMessage(text)))

    async def ticking() -> None:
        number = 0
        while True:
            await asyncio.sleep(3600)  # later than any view is looked at, however busy the machine
            number += 1
            say(f"tick {number}")

    async def late() -> None:
        if said.thinking is not None:
            await asyncio.to_thread(said.thinking.wait, HANG)
        say("news of itself")

    ticks: asyncio.Task[None] | None = None
    try:
        while True:
            for event in connection.events():
                match event:
                    case Request() if event.target.endswith("?room=late"):
                        writer.write(connection.send(AcceptConnection()))
                        ticks = asyncio.ensure_future(late())
                    case Request():
                        # In one write: apart, a busy machine lets the client speak before the second one.
                        hello = [AcceptConnection(), TextMessage("welcome"), TextMessage("to the room")]
                        writer.write(b"".join(connection.send(event) for event in hello))
                    case TextMessage() if event.data == "more":
                        say("one more")
                    case TextMessage() if event.data.startswith(("work", "ponder", "soon")):
                        if event.data.startswith("work"):
                            say("begun")
                        if event.data == "soon":
                            await asyncio.sleep(0.3)
                        elif said.thinking is not None:
                            await asyncio.to_thread(said.thinking.wait, HANG)
                        say(f"the end of {event.data}")
                    case TextMessage() if event.data == "leave":
                        writer.write(connection.send(CloseConnection(4001, "bye")))
                    case BytesMessage():
                        writer.write(connection.send(BytesMessage(b"heard: " + bytes(event.data))))
                    case Message():
                        await asyncio.sleep(0.2)
                        if said.thinking is not None:
                            await asyncio.to_thread(said.thinking.wait, HANG)
                        say("the list: a, b")
                        said.talk.set()
                        ticks = asyncio.ensure_future(ticking())
                    case CloseConnection():
                        if connection.state is not wsproto.connection.ConnectionState.CLOSED:
                            writer.write(connection.send(event.response()))
                        return
            data = await reader.read(4096)
            if not data:
                return
            connection.receive_data(data)
    finally:
        if ticks is not None:
            ticks.cancel()


async def _serve(said: Said, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode().partition("?")[0]
            if path == "/talk":
                await _talk(said, reader, writer, head)
                return
            if path == "/events":
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                )
                writer.write(b"id: 7\ndata: first\n\nevent: special\ndata: of two\ndata: lines\n\n")
                await writer.drain()
                await asyncio.sleep(0.1)
                writer.write(b"data: third\n\n")
                said.news.set()
                while True:
                    await writer.drain()
                    await asyncio.sleep(3600)
                    writer.write(b"data: tick\n\n")
            if path == "/said":
                await asyncio.gather(said.talk.wait(), said.news.wait())
            body = said.page.encode() if path == "/" else b"nothing"
            status = 200 if path in ("/", "/said") else 404
            writer.write(b"HTTP/1.1 %d OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" %
                         (status, len(body)) + body)  # fmt: skip
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        return
    finally:
        writer.close()


@contextmanager
def streaming_site(page: str = PAGE, thinking: threading.Event | None = None) -> Iterator[str]:
    """The running origin's base URL. Its socket says the list once `thinking` is set."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        asyncio.start_server(partial(_serve, Said(page, thinking)), "127.0.0.1", 0)
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:

        async def stop() -> None:
            server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), loop).result(HANG)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG)
        loop.close()
