"""The state that a gateway's connections share on its event loop, and its own pages (http://stillweb.local/)."""

from __future__ import annotations

import asyncio
import json
import pickle
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stillweb.proxy.net.addresses import OWN_HOST
from stillweb.proxy.net.ca import CACHED_CONTEXTS, Authority, normal_host
from stillweb.proxy.net.own_pages import why_refused
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Entry, Ledger
from stillweb.proxy.replay.memento import page
from stillweb.proxy.replay.replies import Reply, SessionState, failure, own_reply
from stillweb.snapshots.capture import Response
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    import ssl

    from stillweb.snapshots.snapshot import Snapshot


class OpenConnection(Protocol):
    """A connection that the hub can end."""

    def abort(self) -> None: ...
    def overdue(self, now: float, /) -> None: ...


@dataclass(frozen=True, slots=True)
class GatewayStats:
    """The counts since the gateway's start."""

    requests: int
    misses: int
    sessions: dict[str, int]  # requests by session
    connections: int  # open now
    malformed: int
    failures: int  # answers that broke off
    failed: int  # requests that failed as they did while recording
    presumed: int  # answers less sure than 0.99
    expected_wrong: float


LAST_FAILURES, LAST_MISSES = 5, 20
LAST = 2.0  # seconds that pending requests get when a gateway closes
READERS = 8  # threads that read large bodies
# The same of live answers: a web socket or an event stream keeps one as long as it is open.
LIVE_READERS = 1024

# draws the status and the last misses as HTML, with the page's Content-Security-Policy
Drawing = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], tuple[bytes, str]]


class Hub:
    """The shared state of a gateway's connections. Used on the gateway's event loop only."""

    own_host = OWN_HOST

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        authority: Authority,
        answerer: Answerer,
        *,
        challenge: bool,
    ) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        self.authority = authority
        self.answerer = answerer
        self.challenge = challenge
        self.own_pages = True
        self.draw: Drawing | None = None
        self.connections: set[OpenConnection] = set()
        self.malformed = 0
        self.failures = answerer.failures
        self.started = time.monotonic()
        self._protocols: dict[str, tuple[str, ...]] = {}
        threads = READERS if answerer.live is None else READERS + LIVE_READERS
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="stillweb-gateway")

    def challenge_all(self) -> None:
        """Ask clients that don't name their session for a name from now on."""
        if not self.challenge:
            self.challenge = True
            self.answerer.kept.forget_memos()  # some belong to clients without a name

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS context for a host, offering the protocols that it was recorded with."""
        return self.authority.context_for(host, self.protocols(normal_host(host)))

    def protocols(self, host: str) -> tuple[str, ...]:
        """Return a host's ALPN protocols, with h2 if any of its captures used it.

        So pages behave as they did while recording.
        """
        known = self._protocols.get(host)
        if known is None:
            if len(self._protocols) >= CACHED_CONTEXTS:
                self._protocols.clear()
            known = self._protocols[host] = recorded_protocols(self.snapshot, host)
        return known

    def own_page(self, request: Request, names: Collection[str] = (OWN_HOST,)) -> Reply:
        """Return one of the gateway's own pages, or 404 if they are switched off."""
        if not self.own_pages:
            return failure(request, 404, "Not Found", "this gateway shows no pages of its own")
        return own_page(self, request, names)

    def ask_for_name(self) -> Reply:
        """Return the 407 answer to a client that named no session."""
        body = b"stillweb: give a session's name as proxy user (any password)\n"
        fields = (
            ("Proxy-Authenticate", 'Basic realm="stillweb session"'),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
        )
        return Reply(407, "Proxy Authentication Required", fields, body)

    async def virtual(self, request: Request, state: SessionState, host: str) -> Reply:
        """Call a virtual host on a thread and return its reply."""
        handler = self.answerer.virtual_hosts[host]
        fault = self.answerer.fault_for(request, state)
        if fault is not None and (reply := self.answerer.fault_reply(request, state, fault)) is not None:
            return reply
        try:
            with state.working():
                made = await self.answerer.run_to_end(self.run(handler, request, state.name), request.body)
        except Exception as error:  # noqa: BLE001 -- others' code: client and status page report it
            self.failed(error)
            made = broken_host(host, error)
        return self.answerer.virtual(request, state, made, fault)

    async def run(self, function: Any, *arguments: Any) -> Any:
        """Run a function on a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def next_piece(self, pieces: Iterator[bytes]) -> bytes | None:
        """Return the next piece of a large body, read on a thread; None at its end."""
        piece: bytes | None = await self.run(next, pieces, None)
        return piece

    def failed(self, error: BaseException | None) -> None:
        """Record an error that broke off an answer, for the status page."""
        self.answerer.fail(f"{type(error).__name__}: {error}")

    def stats(self) -> GatewayStats:
        answerer = self.answerer
        return GatewayStats(
            answerer.requests,
            answerer.misses,
            answerer.sessions,
            len(self.connections),
            self.malformed,
            answerer.forgotten + len(self.failures),
            answerer.failed,
            answerer.doubts.presumed,
            answerer.doubts.doubt,
        )

    def status(self) -> dict[str, Any]:
        """Return the data of the status page."""
        stats, error = self.stats(), self.ledger.error
        return {
            "replaying": True,
            "snapshot": self.snapshot.id,
            "paths": list(self.snapshot.paths),
            "accept": self.answerer.accept,
            "min_confidence": self.answerer.min_confidence,
            "requests": stats.requests,
            "misses": stats.misses,
            "failed": stats.failed,
            "faulted": self.answerer.faulted,
            "presumed": stats.presumed,
            "expected_wrong": stats.expected_wrong,
            "sessions": stats.sessions,
            "connections": stats.connections,
            "malformed": stats.malformed,
            "failures": self.failures[-LAST_FAILURES:],
            "ledger": str(self.ledger.path) if self.ledger.path else None,
            "ledger_error": str(error) if error else None,
            "seconds": int(time.monotonic() - self.started),
        }

    async def close(self) -> None:
        """End all connections and cancel all tasks on the event loop."""
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # the connections notice that they are gone
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=LAST)  # requests that were read are answered, for the ledger
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.answerer.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def recorded_protocols(snapshot: Snapshot, host: str) -> tuple[str, ...]:
    """Return the ALPN protocols to offer for a host, best first."""
    url = f"https://{f'[{host}]' if ':' in host else host}/"
    start = request_key(Request("GET", url)).urlkey
    if snapshot.speaks("h2", start.rpartition(")")[0] or start):
        return ("h2", "http/1.1")
    return ("http/1.1",)


def end_overdue(hub: Hub) -> None:
    """End connections without progress."""
    now = time.monotonic()
    for connection in list(hub.connections):
        connection.overdue(now)


async def sweep(hub: Hub) -> None:
    """End connections without progress and move idle sessions to disk, once a second."""
    while True:
        await asyncio.sleep(1.0)
        end_overdue(hub)
        hub.answerer.kept.tidy()
        try:
            for _ in hub.answerer.states.move_idle_sessions():
                await asyncio.sleep(0)
        except (sqlite3.Error, TypeError, pickle.PicklingError) as error:  # no room, say: they stay in memory
            hub.failed(error)


def broken_host(host: str, error: Exception) -> Response:
    """Return the 500 answer for a virtual host that raised."""
    text = f"stillweb: the virtual host {host} failed: {type(error).__name__}: {error}\n"
    fields = (("Content-Type", "text/plain; charset=utf-8"), ("Stillweb-Verdict", "miss"))
    return Response(500, "Internal Server Error", fields, text.encode("utf-8", "replace"))


def own_page(hub: Hub, request: Request, names: Collection[str]) -> Reply:
    """Return `/` (status), `/ledger` (JSONL), `/misses` (JSONL), `/ca.pem` or a page of Memento. They get no ledger lines.

    Only requests for `names`, for addresses and for localhost are answered.
    """
    if why := why_refused(request.header("host"), request.header("origin"), names):
        return own_reply(request, 403, "text/plain; charset=utf-8", f"stillweb: {why}.\n".encode())
    path = "/" + request.url.partition("://")[2].partition("/")[2].partition("?")[0]
    if request.method not in ("GET", "HEAD"):
        return own_reply(
            request, 405, "text/plain", b"stillweb: only GET is answered here\n", ("Allow", "GET, HEAD")
        )
    if path == "/":
        status = hub.status()
        if hub.draw is not None and _wants_html(request.header("accept") or ""):
            body, policy = hub.draw(status, _last_misses(hub))
            return own_reply(request, 200, "text/html; charset=utf-8", body, policy=policy)
        return own_reply(request, 200, "application/json", (json.dumps(status, indent=1) + "\n").encode())
    if path.startswith(("/timemap/link/", "/timegate/", "/memento/")):
        return page(hub.snapshot, request)
    if path == "/ca.pem":
        name = ("Content-Disposition", 'attachment; filename="stillweb-ca.pem"')
        return own_reply(request, 200, "application/x-pem-file", hub.authority.certificate_pem, name)
    try:
        if path == "/ledger":
            return own_reply(request, 200, "application/x-ndjson", hub.ledger.text())
        if path == "/misses":
            lines = [json.dumps(entry, separators=(",", ":")) + "\n" for entry in hub.ledger.misses()]
            return own_reply(request, 200, "application/x-ndjson", "".join(lines).encode())
    except StillwebError as error:
        return own_reply(request, 500, "text/plain; charset=utf-8", f"stillweb: {error}\n".encode())
    text = b"stillweb: here are / (status), /ledger, /misses, /ca.pem, /timegate/URL and /timemap/link/URL\n"
    return own_reply(request, 404, "text/plain; charset=utf-8", text)


def _last_misses(hub: Hub) -> list[Entry]:
    """Return the last misses; none if the ledger can't be read, which the status says."""
    try:
        return hub.ledger.misses()[-LAST_MISSES:]
    except StillwebError:
        return []


def _wants_html(accept: str) -> bool:
    where = accept.find("text/html")
    return where >= 0 and not 0 <= accept.find("application/json") < where
