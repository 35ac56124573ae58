"""One process of several behind a gateway's port: the child's side. Run as `python -m proxy.worker SETTINGS`."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxy.answering import Answerer
from proxy.certificates import Authority
from proxy.connection import Connection
from proxy.hub import Hub, sweep
from proxy.ledger import Ledger
from proxy.listening import flush_at_sigterm, new_loop
from proxy.workers import MESSAGE
from snapshots.errors import StillwebError
from snapshots.snapshot import Snapshot

GARBAGE = 20_000  # new objects between collections; answering a request leaves no cycles


async def serve(hub: Hub, channel: socket.socket, questions: socket.socket) -> None:
    """Serves the connections that come over the channel until it is closed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def adopt(sock: socket.socket, data: bytes) -> None:
        try:
            _, connection = await loop.connect_accepted_socket(lambda: Connection(hub), sock)
        except OSError:
            sock.close()  # the client has gone meanwhile
            return
        assert isinstance(connection, Connection)
        connection.data_received(data)

    def arrived() -> None:
        try:
            data, fds, _, _ = socket.recv_fds(channel, MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not fds:
            stop.set()  # the parent has closed, or is gone
            return
        sock = socket.socket(fileno=fds[0])
        sock.setblocking(False)
        task = loop.create_task(adopt(sock, data))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    channel.setblocking(False)
    loop.add_reader(channel, arrived)
    sweeper = loop.create_task(sweep(hub))
    loop.add_reader(questions, answer_questions, hub, questions, bytearray())
    questions.sendall(b'{"ready":true}\n')
    await stop.wait()
    loop.remove_reader(channel)
    loop.remove_reader(questions)
    sweeper.cancel()
    hub.close()
    await asyncio.sleep(0)


def answer_questions(hub: Hub, questions: socket.socket, buffer: bytearray) -> None:
    """Answers what the parent has asked."""
    buffer += questions.recv(1 << 16)
    while (end := buffer.find(b"\n")) >= 0:
        question = json.loads(buffer[:end])
        del buffer[: end + 1]
        answer: dict[str, Any] = {}
        match question["ask"]:
            case "stats":
                hub.ledger.flush()
                answer = asdict(hub.stats())
            case "reset":
                hub.answerer.reset(question["session"])
            case "rename":
                hub.answerer.rename(question["name"], question["session"])
            case "missed":
                answer = {"missed": hub.answerer.missed(question["session"])}
            case "challenge":
                hub.challenge_all()
        questions.sendall(json.dumps(answer).encode() + b"\n")


def main(settings: dict[str, Any]) -> int:
    """Opens the snapshot and serves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and stops us
    channel = socket.socket(fileno=settings["channel"])
    questions = socket.socket(fileno=settings["questions"])
    try:
        snapshot = Snapshot.open(*settings["paths"])
        ledger = Ledger(fd=settings["ledger_fd"], started=settings["started"])
        authority = Authority.load_or_create(Path(settings["authority"]))
        answerer = Answerer(snapshot, ledger, accept=settings["accept"], cache_bytes=settings["cache_bytes"])
    except StillwebError as error:
        questions.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return error.exit_code
    flush_at_sigterm(ledger)
    gc.collect()
    gc.freeze()  # what is here now stays to the end: no collection need look at it again
    gc.set_threshold(GARBAGE)
    hub = Hub(snapshot, ledger, authority, answerer, challenge=settings["challenge"], shared=True)
    loop = new_loop()
    try:
        loop.run_until_complete(serve(hub, channel, questions))
    finally:
        loop.close()
        ledger.close()
        snapshot.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
