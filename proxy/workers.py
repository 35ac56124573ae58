"""Several processes behind one port: the parent's side.

The parent accepts, reads the first request of a connection for the session it names, and hands the socket to the
worker that has that session. So a session's state, order and ledger numbers are those of one process.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from proxy.addresses import DEFAULT_SESSION, session_name
from proxy.connection import PATIENCE
from proxy.http1 import MAX_HEAD
from snapshots.errors import MissingCapability

START_SECONDS = 120.0
STOP_SECONDS = 60.0
MESSAGE = MAX_HEAD + (1 << 17)  # of the channel: a head, and what came with it

_CREDENTIALS = re.compile(rb"(?im)^proxy-authorization:[ \t]*([^\r\n]*)")
_OWN_FORM = re.compile(rb"(?i)[A-Z]+ (?:/|http://stillweb\.local[/ :])")


class Worker:
    """One process. Its channel carries sockets and questions; one question is asked at a time."""

    def __init__(self, number: int, settings: dict[str, Any], ledger_fd: int) -> None:
        self.number = number
        self.sessions = 0
        self._lock = threading.Lock()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.channel, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE)
        self.questions, their_questions = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        fds = {"channel": theirs.fileno(), "questions": their_questions.fileno(), "ledger_fd": ledger_fd}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "proxy.worker", json.dumps(settings | fds)],
            pass_fds=tuple(fds.values()),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        their_questions.close()
        self._answers = self.questions.makefile("rb")
        self.questions.settimeout(START_SECONDS)

    def ready(self) -> None:
        """Waits until it answers. Raises MissingCapability with what it said."""
        line = self._line()
        if line.get("ready") is not True:
            raise MissingCapability(f"a worker could not start: {line.get('error', 'it ended')}")

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        """A question and its answer; {} when the worker is gone."""
        with self._lock:
            try:
                self.questions.sendall(json.dumps({"ask": question, **more}).encode() + b"\n")
                return self._line()
            except OSError:
                return {}

    def _line(self) -> dict[str, Any]:
        line = self._answers.readline()
        value: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        return value

    def hand_over(self, sock: socket.socket, data: bytes) -> None:
        """Gives a client's connection to the worker, with what was read from it. Raises OSError if it is gone."""
        socket.send_fds(self.channel, [data], [sock.fileno()])

    def stop(self) -> None:
        """Ends the process; it writes its part of the ledger first."""
        self.channel.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._answers.close()
        self.questions.close()


class Workers:
    """The processes of a gateway, and which session is whose."""

    def __init__(self, count: int, settings: dict[str, Any], ledger_fd: int) -> None:
        if not hasattr(socket, "SOCK_SEQPACKET") or sys.platform == "darwin":
            raise MissingCapability("several workers need Linux; use one")
        self.all: list[Worker] = []
        self._of: dict[str, Worker] = {}
        try:
            for number in range(count):
                self.all.append(Worker(number, settings, ledger_fd))
            for worker in self.all:
                worker.ready()
        except BaseException:
            self.stop()
            raise

    def of(self, session: str) -> Worker:
        """The worker that has a session; a new one goes to the worker that has fewest."""
        worker = self._of.get(session)
        if worker is None:
            worker = self._of[session] = min(self.all, key=lambda w: (w.sessions, w.number))
            worker.sessions += 1
        return worker

    def rename(self, name: str, session: str) -> None:
        """A name is a session's, for all workers: the one that asked a browser for its name keeps that connection."""
        self._of[name] = self.of(session)
        for worker in self.all:
            worker.ask("rename", name=name, session=session)

    def ask_all(self, question: str) -> list[dict[str, Any]]:
        """The answers of all workers."""
        return [worker.ask(question) for worker in self.all]

    def stop(self) -> None:
        """Ends all."""
        for worker in self.all:
            worker.stop()

    async def receive(
        self,
        sock: socket.socket,
        own: Callable[[socket.socket, bytes], Any],
        failed: Callable[[Exception], None],
    ) -> None:
        """Reads the first head of a connection and hands it to the right worker, or to `own` if it is for us."""
        loop = asyncio.get_running_loop()
        gathered, seen = bytearray(), 0
        try:
            async with asyncio.timeout(PATIENCE):
                while (
                    gathered.find(b"\r\n\r\n", max(0, seen - 3)) < 0
                    and len(gathered) <= MAX_HEAD
                    and not gathered.startswith(b"\x16")
                ):
                    seen = len(gathered)
                    piece = await loop.sock_recv(sock, 1 << 16)
                    if not piece:
                        sock.close()
                        return
                    gathered += piece
        except (OSError, TimeoutError):
            sock.close()
            return
        data = bytes(gathered)
        if _OWN_FORM.match(data):
            await own(sock, data)
            return
        given = _CREDENTIALS.search(data.partition(b"\r\n\r\n")[0])
        name = session_name(given[1].decode("latin-1")) if given else None
        try:
            self.of(name or DEFAULT_SESSION).hand_over(sock, data)
        except OSError as error:  # the worker is gone: its sessions can't be answered rightly by another
            failed(error)
        sock.close()
