"""Several processes behind one port: the parent's side.

The parent accepts, reads the first request of a connection for the session it names, and hands the socket to the
worker that has that session. So a session's state, order and ledger numbers are those of one process. A later
request for another's session, or for our own pages, comes back with its connection and is handed on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stillweb.proxy.serving import handing
from stillweb.proxy.serving.children import Child, Fork, spawn
from stillweb.proxy.serving.http1 import CREDENTIALS
from stillweb.proxy.wire.addresses import DEFAULT_SESSION, session_name
from stillweb.snapshots.errors import DamagedInput, MissingCapability, StillwebError, UsageError

if TYPE_CHECKING:
    from stillweb.proxy.serving.worker import Job

START_SECONDS = 120.0
STOP_SECONDS = 60.0
MOST = 4  # processes that `default_count` takes

_OWN_FORM = re.compile(rb"(?i)[A-Z]+ (?:/|http://stillweb\.local(?::\d+)?[/ ?])|CONNECT stillweb\.local:\d+ ")
_ERRORS: dict[int, type[StillwebError]] = {
    error.exit_code: error for error in (UsageError, DamagedInput, MissingCapability)
}
Own = Callable[[socket.socket, bytes], None]


def supported() -> bool:
    """Whether several processes can serve on this system: sockets are handed over in whole messages."""
    return hasattr(socket, "SOCK_SEQPACKET") and sys.platform != "darwin"


def default_count() -> int:
    """The processes that serve best: one for each core that this process may use, at most `MOST`."""
    if not supported():
        return 1
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 1
    return max(1, min(MOST, cores))


class Worker:
    """One process. Its channel carries sockets; one question is asked at a time."""

    def __init__(self, number: int, job: Job, inherited: list[socket.socket] | None) -> None:
        self.number = number
        self.sessions = 0
        self.lost = ""  # how it ended, though nobody had told it to
        self._counts: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.channel, theirs = handing.channel()
        self.questions, their_questions = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if inherited is None:
                self.process = _spawned(job, theirs, their_questions)
            else:
                self.process = _forked(
                    job, theirs, their_questions, [*inherited, self.channel, self.questions]
                )
        except OSError as error:
            raise MissingCapability(
                f"another process can't be started: {error.strerror}; with one worker none is needed"
            ) from error
        theirs.close()
        their_questions.close()
        self._answers = self.questions.makefile("rb")
        self.questions.settimeout(START_SECONDS)

    def ready(self) -> None:
        """Waits until it answers. Raises what kept it from starting."""
        line = self._line()
        if line.get("ready") is not True:
            kind = _ERRORS.get(line.get("code", 0), MissingCapability)
            raise kind(f"a worker could not start: {line.get('error', 'it ended')}")

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        """A question and its answer. Raises MissingCapability when it is gone."""
        with self._lock:
            try:
                if not self.lost:
                    self.questions.sendall(json.dumps({"ask": question, **more}).encode() + b"\n")
                    if answer := self._line():
                        return answer
            except OSError:
                pass
        raise MissingCapability(self.lost or f"process {self.number + 1} of the gateway does not answer")

    def counts(self) -> dict[str, Any]:
        """What it has counted; when it is gone what it had when it was asked last."""
        with contextlib.suppress(MissingCapability):
            self._counts = self.ask("stats")
        return self._counts

    def _line(self) -> dict[str, Any]:
        line = self._answers.readline()
        value: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        return value

    def hand_over(self, sock: socket.socket, session: str, data: bytes) -> None:
        """Gives a client's connection to the worker, with what was read from it. Raises OSError if it is gone."""
        handing.hand(self.channel, sock.fileno(), session, data)

    def leave(self) -> None:
        """Tells it to end; it writes its part of the ledger first."""
        self.channel.close()

    def stop(self) -> str:
        """Waits for the end, after `leave`; what went wrong, "" for nothing."""
        said: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError), self._lock:
            self.questions.settimeout(STOP_SECONDS)
            said = self._line()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._answers.close()
        self.questions.close()
        if not self.lost and (code != 0 or not said):
            self.lost = self.how(code)
        return self.lost or said.get("ledger_error") or ""

    def gone(self) -> str:
        """How it ended, which nobody had asked of it."""
        if not self.lost:
            try:
                code = self.process.wait(1.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
            self.lost = self.how(code)
        return self.lost

    def how(self, code: int) -> str:
        """An exit code in words."""
        end = f"was killed by signal {-code}" if code < 0 else f"ended by itself (exit code {code})"
        return (
            f"process {self.number + 1} of the gateway {end}: its sessions can't be answered any more, "
            "and the last lines of its ledger may be missing"
        )


def _spawned(job: Job, channel: socket.socket, questions: socket.socket) -> Child:
    fds = (channel.fileno(), questions.fileno(), job.ledger.fileno())
    return spawn(
        "stillweb.proxy.serving.worker", job.to_json() | {"channel": fds[0], "questions": fds[1]}, fds
    )


def _forked(
    job: Job, channel: socket.socket, questions: socket.socket, parents: list[socket.socket]
) -> Child:
    from stillweb.proxy.serving import worker

    def child() -> int:
        for sock in parents:  # so that all end with the parent; also where a file of one is open
            os.close(sock.detach())
        return worker.run(job.in_child(), channel, questions)

    return Fork(child)


class Workers:
    """The processes of a gateway, and which session is whose.

    Forks where `inherited` is given: the sockets of this process that are none of theirs.
    """

    def __init__(self, count: int, job: Job, inherited: list[socket.socket] | None) -> None:
        if not supported():
            raise MissingCapability("several workers need Linux; use one")
        if job.hosts is not None:
            job.hosts.function()  # so that what is wrong with it is told plainly, and all have it in memory
        self.all: list[Worker] = []
        self._of: dict[str, Worker] = {}
        self._lock = threading.Lock()
        try:
            for number in range(count):
                others = [end for w in self.all for end in (w.channel, w.questions)]
                self.all.append(Worker(number, job, None if inherited is None else [*inherited, *others]))
            for worker in self.all:
                worker.ready()
        except BaseException:
            self.stop()
            raise

    def of(self, session: str) -> Worker:
        """The worker that has a session; a new one goes to the worker that has fewest."""
        with self._lock:
            worker = self._of.get(session)
            if worker is None:
                worker = min(self.all, key=lambda w: (bool(w.lost), w.sessions, w.number))
                self._of[session] = worker
                worker.sessions += 1
            return worker

    def rename(self, name: str, session: str) -> None:
        """A name is a session's. Raises MissingCapability."""
        worker = self.of(session)
        with self._lock:
            self._of[name] = worker
        worker.ask("rename", name=name, session=session)

    def ask_all(self, question: str) -> None:
        """Asks every worker. Raises MissingCapability."""
        for worker in self.all:
            worker.ask(question)

    def stop(self) -> list[str]:
        """Ends all; what went wrong."""
        for worker in self.all:
            worker.leave()
        return [why for worker in self.all if (why := worker.stop())]

    def heard(self, worker: Worker, own: Own) -> bool:
        """Takes what a worker gives back; False when it is gone. Raises OSError for a connection that is lost."""
        try:
            given = handing.taken(worker.channel)
        except EOFError:
            worker.gone()
            return False
        if given is not None:
            self._pass_on(*given, own)
        return True

    def assign(self, sock: socket.socket, data: bytes, own: Own) -> None:
        """Hands a new connection, whose first head was read, to the right worker, or to `own` if it is for us."""
        session = ""
        if not _OWN_FORM.match(data):
            given = CREDENTIALS.search(data.partition(b"\r\n\r\n")[0])
            session = (session_name(given[1].decode("latin-1")) if given else None) or DEFAULT_SESSION
        self._pass_on(sock, session, data, own)

    def _pass_on(self, sock: socket.socket, session: str, data: bytes, own: Own) -> None:
        if not session:
            own(sock, data)
            return
        worker = self.of(session)
        try:
            if worker.lost:
                raise OSError(worker.lost)
            worker.hand_over(sock, session, data)
        except OSError as error:  # its sessions can't be answered rightly by another
            body = (
                f"stillweb: {worker.lost or f'process {worker.number + 1} of the gateway is gone: {error}'}\n"
            )
            head = f"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
            with contextlib.suppress(OSError):
                sock.send(f"{head}Connection: close\r\n\r\n{body}".encode())
        sock.close()
