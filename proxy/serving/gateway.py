"""The replay gateway: a forward proxy that answers from a snapshot and never connects to anything.

There is no code here, nor in what this imports from `proxy`, that opens an outgoing connection; a test looks.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from stillweb.proxy.serving.answering import CACHE_BYTES, Answerer
from stillweb.proxy.serving.bridging import bridge
from stillweb.proxy.serving.connection import Connection
from stillweb.proxy.serving.entrance import Entrance
from stillweb.proxy.serving.hosting import MadeHosts, VirtualHost
from stillweb.proxy.serving.hub import LAST_FAILURES, GatewayStats, Hub, Told, sweep
from stillweb.proxy.serving.ledger import Ledger
from stillweb.proxy.serving.listening import BACKLOG, flush_at_sigterm, listen, new_loop
from stillweb.proxy.serving.misses import Missed
from stillweb.proxy.serving.reception import Reception
from stillweb.proxy.wire.addresses import DEFAULT_SESSION, with_session
from stillweb.proxy.wire.certificates import Authority
from stillweb.proxy.wire.open_files import allow_many_open_files
from stillweb.proxy.wire.proxied import Proxied
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from stillweb.snapshots.matching.accepting import check_accept

if TYPE_CHECKING:
    from stillweb.proxy.serving.workers import Worker, Workers
    from stillweb.snapshots.snapshot import Snapshot


class Gateway(Proxied):
    """Serves a snapshot as a proxy. A context manager; it has its own thread and event loop.

    `port` 0 takes a free one. `accept` is the lowest verdict served: exact, canonical, varies or rule, with
    "+unambiguous" to refuse guesses. `virtual_hosts` answer for hosts of their own, on a thread: functions of this
    process, or `MadeHosts`, which each process makes for itself. Sessions are
    proxy user names; browsers give theirs only when asked, so `challenge` makes the gateway ask (407); None
    means: as soon as `proxy_url` has been called with a name other than "default". With `workers` more than 1
    as many processes serve; each session is in one of them. `cache_bytes` bounds the hot captures kept (each).
    `on_loss` hears, on the gateway's thread, that one of them has ended: `close` will raise it. With `forks` they
    may be forks, which begin at once, but hold whatever files and sockets this process has open. Without `own_pages`
    it shows nobody its status and ledger, which tell of all sessions and of this machine.

    Raises MissingCapability (port in use, ledger not writable, a process lost) and UsageError.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        accept: str = "rule",
        ledger: Ledger | None = None,
        authority: Authority | None = None,
        virtual_hosts: Mapping[str, VirtualHost] | MadeHosts | None = None,
        challenge: bool | None = None,
        cache_bytes: int = CACHE_BYTES,
        workers: int = 1,
        on_loss: Callable[[str], None] | None = None,
        forks: bool = False,
        own_pages: bool = True,
    ) -> None:
        check_accept(accept)
        made = isinstance(virtual_hosts, MadeHosts)
        if workers < 1 or (workers > 1 and virtual_hosts and not made):
            raise UsageError(
                "workers: 1 or more; and only 1 with virtual hosts of this process (MadeHosts are made in each)"
            )
        super().__init__(authority, host, port, challenge)
        self.snapshot = snapshot
        self.ledger = ledger if ledger is not None else Ledger()
        self._accept = accept
        self._cache_bytes = cache_bytes
        self._count = workers
        self._workers: Workers | None = None
        self._last = GatewayStats(0, 0, {}, 0, 0, 0, 0)
        self._on_loss = on_loss
        self._forks = forks
        self._hosts: MadeHosts | None = None
        if isinstance(virtual_hosts, MadeHosts):
            self._hosts = virtual_hosts
            virtual_hosts = virtual_hosts.make(snapshot) if workers == 1 else None
        answerer = Answerer(
            snapshot, self.ledger, accept=accept, virtual_hosts=virtual_hosts, cache_bytes=cache_bytes
        )
        self._hub = Hub(snapshot, self.ledger, self.authority, answerer, challenge=bool(challenge))
        self._hub.own_pages = own_pages
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._broken: OSError | None = None

    # Life

    def start(self) -> Gateway:
        """Listens and answers when this returns."""
        allow_many_open_files()
        self._socket = listen(self._host, self._port)
        self._port = self._socket.getsockname()[1]
        if self._count > 1:
            try:
                self._start_workers(self._socket)
            except BaseException:
                self._socket.close()
                raise
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="stillweb-gateway", daemon=True
        )
        self._thread.start()
        started.wait()
        if self._broken is not None:
            self._thread.join()
            self._thread = None
            self._socket.close()
            if self._workers is not None:
                self._workers.stop()
            raise MissingCapability(f"the gateway can't start: {self._broken.strerror}") from self._broken
        flush_at_sigterm(self.ledger)
        atexit.register(self.close)
        return self

    def _start_workers(self, listener: socket.socket) -> None:
        from stillweb.proxy.serving.children import may_fork
        from stillweb.proxy.serving.worker import Job
        from stillweb.proxy.serving.workers import Workers

        job = Job(
            self.snapshot,
            self.ledger,
            self.authority,
            self._accept,
            self._hub.challenge,
            self._cache_bytes,
            self._hosts,
        )
        self._workers = Workers(self._count, job, [listener] if self._forks and may_fork() else None)
        self._hub.only_own = True
        self._hub.gather = self._gather
        self._hub.processes = self._count

    def close(self) -> None:
        """Stops answering and writes the ledger. Raises what kept it from being written, or the loss of a process."""
        thread = self._thread
        if thread is None:
            return
        self._last = self.stats
        self._thread = None
        atexit.unregister(self.close)
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        wrong = self._workers.stop() if self._workers is not None else []
        self.ledger.flush()
        if self.ledger.error is not None:
            raise self.ledger.error
        if wrong:
            raise MissingCapability("; ".join(dict.fromkeys(wrong)))

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except MissingCapability:
            if kind is None:  # an error on its way already is the one to be seen
                raise

    def _run(self, started: threading.Event) -> None:
        try:
            loop = new_loop()
            try:
                loop.run_until_complete(self._serve(started))
            finally:
                loop.close()
        except OSError as error:
            if started.is_set():
                raise
            self._broken = error  # no more open files, mostly: `start` says it
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        hub = self._hub
        assert self._socket is not None
        sweeper = loop.create_task(sweep(hub))
        server: asyncio.Server | Reception
        if self._workers is None:
            server = await loop.create_server(lambda: Entrance(hub), sock=self._socket, backlog=BACKLOG)
        else:
            server = self._receive(self._socket, self._workers)
        started.set()
        await self._stop.wait()
        sweeper.cancel()
        server.close()
        self._socket.close()
        await hub.close()

    def _receive(self, listener: socket.socket, workers: Workers) -> Reception:
        """Accepts for the workers; what asks for our own pages is answered here."""
        loop = asyncio.get_running_loop()
        hub = self._hub
        tasks: set[asyncio.Task[None]] = set()

        async def adopt(sock: socket.socket, data: bytes) -> None:
            try:
                await loop.connect_accepted_socket(lambda: Connection(hub, data), sock)
            except OSError:
                sock.close()  # the client has gone meanwhile

        def work(task: asyncio.Task[None]) -> None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def own(sock: socket.socket, data: bytes) -> None:
            work(loop.create_task(adopt(sock, data)))

        def unread(why: str) -> None:
            with contextlib.suppress(MissingCapability):  # it is gone, which is told
                workers.of(DEFAULT_SESSION).ask("unread", why=why)

        async def unsealed(sock: socket.socket, data: bytes) -> None:
            try:
                reception.take(await bridge(hub, sock, data, unread))
            except (OSError, StillwebError) as error:
                hub.failed(error)
                sock.close()

        def unseal(sock: socket.socket, data: bytes) -> None:
            work(loop.create_task(unsealed(sock, data)))

        def heard(worker: Worker) -> None:
            try:
                there = workers.heard(worker, own)
            except OSError as error:
                hub.failed(error)
                return
            if not there:
                loop.remove_reader(worker.channel)
                hub.failures.append(worker.lost)
                if self._on_loss is not None:
                    self._on_loss(worker.lost)

        for worker in workers.all:
            loop.add_reader(worker.channel, heard, worker)
        reception = Reception(
            listener, lambda sock, data: workers.assign(sock, data, own), unseal, hub.failed
        )
        reception.open()
        return reception

    def _ask_for_names(self) -> None:
        if not self._hub.challenge:
            self._on_loop(self._hub.challenge_all)
            if self._workers is not None:
                self._workers.ask_all("challenge")

    def nameless_are(self, session: str) -> None:
        """See `Proxied`."""
        with_session(self.url, session)  # which refuses what can't be a name
        self._challenge = False
        if session != DEFAULT_SESSION:
            self.rename(DEFAULT_SESSION, session)

    # What goes on

    @property
    def stats(self) -> GatewayStats:
        """Counts as of now; after closing, as of then."""
        if self._workers is None:
            return self._hub.stats()
        return self._gather().stats if self._thread is not None else self._last

    def _gather(self) -> Told:
        """What all workers tell, whose ledger lines are in the file when this returns."""
        assert self._workers is not None
        own = self._hub.told()
        sums = Counter[str]()
        sessions: dict[str, int] = {}
        failures, error = list(own.last_failures), own.ledger_error
        for told in filter(None, (worker.counts() for worker in self._workers.all)):
            counts = dict(told["stats"])
            sessions.update(counts.pop("sessions"))
            sums.update(counts)
            failures += told["last_failures"]
            error = error or told["ledger_error"]
        stats = GatewayStats(
            sums["requests"],
            sums["misses"],
            sessions,
            sums["connections"] + own.stats.connections,
            sums["malformed"] + own.stats.malformed,
            sums["failures"] + own.stats.failures,
            sums["failed"],
        )
        return Told(stats, failures[-LAST_FAILURES:], error)

    def missed(self, session: str = DEFAULT_SESSION) -> list[Missed]:
        """What a session asked for in vain so far, whoever of its page asked: a browser tells not all of it."""
        if self._workers is not None:
            answer = self._workers.of(session).ask("missed", session=session)
            return [Missed(*one) for one in answer["missed"]]
        return self._hub.answerer.missed(session)

    def rename(self, name: str, session: str) -> None:
        """What comes under a name, which has asked for nothing yet, is a session's from now on."""
        if self._workers is not None:
            self._workers.rename(name, session)
            return
        self._on_loop(lambda: self._hub.answerer.lines.rename(name, session))

    def reset(self, session: str = DEFAULT_SESSION) -> None:
        """Takes a session's state and cursors back to their start."""
        if self._workers is not None:
            self._workers.of(session).ask("reset", session=session)
            return
        self._on_loop(lambda: self._hub.answerer.reset(session))

    def _on_loop(self, action: Callable[[], None]) -> None:
        """Does something where the connections live, and waits until it is done."""
        loop = self._loop
        if self._thread is None or loop is None:
            action()
            return
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        loop.call_soon_threadsafe(run)
        done.wait()
