"""The replay gateway: a forward proxy that answers from a snapshot and never connects to anything.

Neither this module nor what it imports from `proxy` opens an outgoing connection; a test checks that. Only an object
given as `live` may ask the web for what is missed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Literal

from stillweb.proxy.net.addresses import BACKLOG, DEFAULT_SESSION, listen, with_session
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.open_files import allow_many_open_files
from stillweb.proxy.net.proxy_server import ProxyServer
from stillweb.proxy.replay.answering import CACHE_BYTES, Answerer, Live
from stillweb.proxy.replay.connection import NewConnection
from stillweb.proxy.replay.hosting import VirtualHost
from stillweb.proxy.replay.hub import Drawing, GatewayStats, Hub, sweep
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.misses import MissedRequest
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.evidence import SERVED
from stillweb.snapshots.evidence.confidence import read_confidence
from stillweb.snapshots.identity.accept_level import check_accept

if TYPE_CHECKING:
    from stillweb.proxy.replay.faults import Faults
    from stillweb.snapshots.snapshot import Snapshot


class Gateway(ProxyServer):
    """A proxy that serves a snapshot. A context manager with its own thread and event loop.

    `port` 0 takes a free one. `accept` is the lowest verdict served: exact, canonical, varies or rule, with
    "+unambiguous" to refuse guesses; `min_confidence` is the lowest confidence served. `virtual_hosts` maps hosts to functions that answer for them, on a
    thread. Sessions are proxy user names; browsers send theirs only when asked, so `challenge` makes the
    gateway ask (407). None means: as soon as `proxy_url` has been called with a name other than "default".
    `cache_bytes` bounds the captures kept in memory. `faults` disturb answers on purpose, and `timing`
    (none, recorded, xN) sends them at the recorded pace (docs/drills.md). With `live`, what is missed is asked through that;
    `on_miss` is called, on the event loop, for each miss that matters. Without `own_pages` the gateway hides its status and
    ledger, which tell of all sessions and of this machine. The status is JSON; `draw` makes a page of it for browsers.

    Raises MissingCapability (port in use, ledger not writable) and UsageError.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        accept: str = "rule",
        min_confidence: float | Literal["sure"] = SERVED,
        ledger: Ledger | None = None,
        authority: Authority | None = None,
        virtual_hosts: Mapping[str, VirtualHost] | None = None,
        challenge: bool | None = None,
        cache_bytes: int = CACHE_BYTES,
        own_pages: bool = True,
        draw: Drawing | None = None,
        faults: Faults | None = None,
        timing: str = "none",
        live: Live | None = None,
        on_miss: Callable[[], None] | None = None,
    ) -> None:
        check_accept(accept)
        super().__init__(authority, host, port, challenge)
        self.snapshot = snapshot
        self.ledger = ledger if ledger is not None else Ledger()
        answerer = Answerer(
            snapshot,
            self.ledger,
            accept=accept,
            min_confidence=read_confidence(min_confidence),
            virtual_hosts=virtual_hosts,
            cache_bytes=cache_bytes,
            faults=faults,
            timing=timing,
            live=live,
            on_miss=on_miss,
        )
        self._hub = Hub(snapshot, self.ledger, self.authority, answerer, challenge=bool(challenge))
        self._hub.own_pages, self._hub.draw = own_pages, draw
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._broken: OSError | None = None

    # Life

    def start(self) -> Gateway:
        """Start to listen and answer. The gateway is ready on return."""
        allow_many_open_files()
        self._socket = listen(self._host, self._port)
        self._port = self._socket.getsockname()[1]
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
            raise MissingCapability(f"the gateway can't start: {self._broken.strerror}") from self._broken
        flush_at_sigterm(self.ledger)
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop answering and write the ledger. Raises the error that kept it from being written."""
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        atexit.unregister(self.close)
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        self.ledger.flush()
        if self.ledger.error is not None:
            raise self.ledger.error

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except MissingCapability:
            if kind is None:  # an exception already under way takes precedence
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
            self._broken = error  # mostly too many open files; `start` reports it
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        hub = self._hub
        assert self._socket is not None
        sweeper = loop.create_task(sweep(hub))
        server = await loop.create_server(lambda: NewConnection(hub), sock=self._socket, backlog=BACKLOG)
        started.set()
        await self._stop.wait()
        sweeper.cancel()
        server.close()
        self._socket.close()
        await hub.close()

    def _ask_for_names(self) -> None:
        if not self._hub.challenge:
            self._on_loop(self._hub.challenge_all)

    def set_default_session(self, session: str) -> None:
        with_session(self.url, session)  # raises for what can't be a name
        self._challenge = False
        if session != DEFAULT_SESSION:
            self.rename(DEFAULT_SESSION, session)

    # What goes on

    @property
    def stats(self) -> GatewayStats:
        """The counts so far; after closing, the final ones."""
        return self._hub.stats()

    @property
    def failures(self) -> list[str]:
        """Errors that broke off answers, the latest last."""
        return list(self._hub.failures)

    def missed(self, session: str = DEFAULT_SESSION) -> list[MissedRequest]:
        """Return the requests that a session missed so far, also those that no browser reports."""
        return self._hub.answerer.missed(session)

    def faults_met(self, session: str = DEFAULT_SESSION) -> list[str]:
        """Return the verdicts of a session's answers that faults changed so far, also of those that were reset."""
        return self._hub.answerer.faults_met(session)

    def rename(self, name: str, session: str) -> None:
        """Assign requests that come under `name`, unused so far, to `session` from now on."""
        self._on_loop(lambda: self._hub.answerer.states.rename(name, session))

    def reset(self, session: str = DEFAULT_SESSION) -> None:
        """Reset a session's state and cursors to their start."""
        self._on_loop(lambda: self._hub.answerer.reset(session))

    def _on_loop(self, action: Callable[[], None]) -> None:
        """Run `action` on the event loop, where the connections live, and wait until it is done."""
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


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def flush_at_sigterm(ledger: Ledger) -> None:
    """Write the ledger before SIGTERM ends the process, unless the program handles SIGTERM itself.

    Does nothing outside the main thread, where no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def again(number: int) -> None:
        ledger.flush()  # waits for the thread that is writing
        while True:  # a signal just before the main thread begins to wait does not wake it
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    def end(number: int, _: FrameType | None) -> None:
        if not ledger.flush_if_free():  # perhaps this thread is writing: waiting would never end
            threading.Thread(target=again, args=(number,), daemon=True).start()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
