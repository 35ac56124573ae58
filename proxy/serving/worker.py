"""One process of several behind a gateway's port: the child's side.

A fork calls `run`; a new interpreter is `python -m stillweb.proxy.serving.worker SETTINGS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stillweb.proxy.serving import handing, refusing
from stillweb.proxy.serving.answering import Answerer
from stillweb.proxy.serving.children import leave_signals_to_the_parent
from stillweb.proxy.serving.connection import Connection
from stillweb.proxy.serving.hosting import MadeHosts
from stillweb.proxy.serving.hub import Hub, sweep
from stillweb.proxy.serving.ledger import Ledger
from stillweb.proxy.serving.listening import new_loop
from stillweb.proxy.wire.certificates import Authority
from stillweb.snapshots.errors import MissingCapability, StillwebError
from stillweb.snapshots.snapshot import Snapshot

GARBAGE = 20_000  # new objects between collections; answering a request leaves no cycles
AGAIN = 0.005  # seconds until a full channel is tried again


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers of a gateway serve, and how."""

    snapshot: Snapshot
    ledger: Ledger
    authority: Authority
    accept: str
    challenge: bool
    cache_bytes: int
    hosts: MadeHosts | None

    def in_child(self) -> Job:
        """The same in a fork: the ledger's pending lines are the parent's to write."""
        return replace(self, ledger=_shared(self.ledger.path, self.ledger.fileno(), self.ledger.started))

    def to_json(self) -> dict[str, Any]:
        """All of it for another interpreter, which inherits the ledger's descriptor."""
        return {
            "path": sys.path,
            "paths": list(self.snapshot.paths),
            "id": self.snapshot.id,
            "ledger": [str(self.ledger.path or ""), self.ledger.fileno(), self.ledger.started],
            "authority": str(self.authority.directory),
            "accept": self.accept,
            "challenge": self.challenge,
            "cache_bytes": self.cache_bytes,
            "hosts": [self.hosts.maker, dict(self.hosts.options)] if self.hosts is not None else None,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Job:
        """The inverse. Raises StillwebError, also when the snapshot is not what it was for the parent."""
        sys.path[:] = told["path"]
        snapshot = Snapshot.open(*told["paths"])
        if snapshot.id != told["id"]:
            raise MissingCapability(
                "the snapshot has changed since it was opened; take one worker, or seal it"
            )
        path, fd, started = told["ledger"]
        return cls(
            snapshot,
            _shared(Path(path) if path else None, fd, started),
            Authority.load_or_create(Path(told["authority"])),
            told["accept"],
            told["challenge"],
            told["cache_bytes"],
            MadeHosts(*told["hosts"]) if told["hosts"] is not None else None,
        )


def _shared(path: Path | None, fd: int, started: float) -> Ledger:
    return Ledger(path, fd=fd, started=started)


async def serve(hub: Hub, channel: socket.socket, questions: socket.socket) -> None:
    """Serves the connections that come over the channel until it is closed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    assert hub.mine is not None
    mine = hub.mine

    async def adopt(sock: socket.socket, data: bytes) -> None:
        try:
            await loop.connect_accepted_socket(lambda: Connection(hub, data), sock)
        except OSError:
            sock.close()  # the client has gone meanwhile

    def arrived() -> None:
        try:
            given = handing.taken(channel)
        except EOFError:
            stop.set()  # the parent has closed, or is gone
            return
        except OSError as error:
            hub.failed(error)
            return
        if given is not None:
            sock, session, data = given
            mine.add(session)
            task = loop.create_task(adopt(sock, data))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def give_back(fd: int, session: str, data: bytes) -> None:
        while True:
            try:
                handing.hand(channel, fd, session, data)
            except BlockingIOError:
                await asyncio.sleep(AGAIN)
            else:
                return

    hub.give_back = give_back
    channel.setblocking(False)
    loop.add_reader(channel, arrived)
    sweeper = loop.create_task(sweep(hub))
    loop.add_reader(questions, answer_questions, hub, questions, bytearray())
    questions.sendall(b'{"ready":true}\n')
    await stop.wait()
    loop.remove_reader(channel)
    loop.remove_reader(questions)
    sweeper.cancel()
    await hub.close()


def answer_questions(hub: Hub, questions: socket.socket, buffer: bytearray) -> None:
    """Answers what the parent has asked."""
    buffer += questions.recv(1 << 16)
    while (end := buffer.find(b"\n")) >= 0:
        question = json.loads(buffer[:end])
        del buffer[: end + 1]
        answer: dict[str, Any] = {"done": True}
        match question["ask"]:
            case "stats":
                hub.ledger.flush()
                answer = asdict(hub.told())
            case "reset":
                hub.answerer.reset(question["session"])
            case "rename":
                hub.answerer.lines.rename(question["name"], question["session"])
            case "missed":
                answer = {"missed": hub.answerer.missed(question["session"])}
            case "unread":
                refusing.unread(hub, question["why"])
            case "challenge":
                hub.challenge_all()
        questions.sendall(json.dumps(answer).encode() + b"\n")


def run(job: Job | Mapping[str, Any], channel: socket.socket, questions: socket.socket) -> int:
    """Serves what comes over the channel, until it is closed; the exit code. What is wrong is told to the parent."""
    leave_signals_to_the_parent()
    try:
        if not isinstance(job, Job):
            job = Job.from_json(job)
        answerer = Answerer(
            job.snapshot,
            job.ledger,
            accept=job.accept,
            virtual_hosts=job.hosts.make(job.snapshot) if job.hosts is not None else None,
            cache_bytes=job.cache_bytes,
        )
    except StillwebError as error:
        questions.sendall(json.dumps({"error": str(error), "code": error.exit_code}).encode() + b"\n")
        return error.exit_code
    gc.freeze()  # what is here now stays to the end: no collection need look at it again
    gc.set_threshold(GARBAGE)
    hub = Hub(job.snapshot, job.ledger, job.authority, answerer, challenge=job.challenge, mine=set())
    loop = new_loop()
    try:
        loop.run_until_complete(serve(hub, channel, questions))
    finally:
        loop.close()
    try:
        job.ledger.close()
        said = None
    except StillwebError as error:
        said = str(error)
    with contextlib.suppress(OSError):  # the parent is gone
        questions.sendall(json.dumps({"ended": True, "ledger_error": said}).encode() + b"\n")
    return 0


def main(settings: dict[str, Any]) -> int:
    """In an interpreter of its own."""
    channel = socket.socket(fileno=settings["channel"])
    questions = socket.socket(fileno=settings["questions"])
    return run(settings, channel, questions)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
