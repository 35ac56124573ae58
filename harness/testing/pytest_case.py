"""Fixture of a test marked `snapshot`: session, gateway, transports and tools."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stillweb.harness._parsing import session_of
from stillweb.harness.testing.blocking import NetworkBlock, is_loopback
from stillweb.harness.testing.shared_snapshots import SharedSnapshots
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.evidence.confidence import SERVED, read_confidence
from stillweb.snapshots.identity.accept_level import check_accept
from stillweb.snapshots.identity.irrelevant import errand
from stillweb.snapshots.request import Request
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.tools import Toolset
    from stillweb.proxy.record.live import LiveRequests
    from stillweb.proxy.replay.faults import Faults
    from stillweb.proxy.replay.replies import Reply

REMEDY = (
    "to be answered from the snapshot: stillweb.mount(session) for requests, transport=stillweb.transport() for httpx, "
    "env=stillweb.environment for a program; for code that makes its own client, set those variables in this process "
    "(docs/pytest.md)"
)
BROWSER = "playwright-mcp@"  # the contract whose tools send requests to the gateway


class Case:
    """Snapshot as one test sees it, with a session of its own; everything is started at first use.

    `proxy_url`, `ca_path` and `environment` are for programs and browsers, `transport()` and `mount()` for clients
    in this process, `tools()` for the tools that agents call. While recording, all but `tools()` use the recorder.
    """

    def __init__(
        self,
        name: str,
        shelf: SharedSnapshots,
        *,
        accept: str = "rule",
        min_confidence: float | Literal["sure"] = SERVED,
        max_misses: int = 0,
        max_expected_wrong: float | None = None,
        allow: Sequence[str] = (),
        faults: Faults | None = None,
    ) -> None:
        if isinstance(max_misses, bool) or not isinstance(max_misses, int) or max_misses < 0:
            raise UsageError(f"mark snapshot: max_misses={max_misses!r}: must be a whole number from 0 on")
        if max_expected_wrong is not None and (
            isinstance(max_expected_wrong, bool)
            or not isinstance(max_expected_wrong, int | float)
            or not max_expected_wrong >= 0
        ):
            raise UsageError(
                f"mark snapshot: max_expected_wrong={max_expected_wrong!r}: must be a number from 0 on"
            )
        self.max_expected_wrong = max_expected_wrong
        self.min_confidence = read_confidence(min_confidence)
        self.name = session_of(name)
        self.shelf, self.accept, self.max_misses = shelf, check_accept(accept), max_misses
        self.blocked = NetworkBlock([allow] if isinstance(allow, str) else allow)
        self.disturbed = faults
        self._stack = ExitStack()
        self._ledger: Any = None
        self._gateway: Any = None
        self._answer: Callable[[Request], Reply] | None = None

    def start(self) -> None:
        """Block the network. While recording it stays open; requests that bypass the fixtures are then not recorded."""
        if not self.shelf.recording:
            self._stack.enter_context(self.blocked)
            self._stack.enter_context(refuse_proxies(self.blocked))

    def close(self) -> None:
        """Close the gateway and unblock the network."""
        self._stack.close()

    @property
    def recording(self) -> bool:
        """True if requests of this test reach the real web."""
        return self.shelf.recording

    @property
    def ledger(self) -> Any:
        if self._ledger is None:
            from stillweb.proxy.replay.ledger import Ledger

            self._ledger = self._stack.enter_context(Ledger())
        return self._ledger

    @property
    def _completing(self) -> bool:
        """True if requests are answered from the snapshot where it has them, and recorded where not."""
        return self.recording and self.shelf.mode == "new_episodes" and self.shelf.target.exists()

    @cached_property
    def _live(self) -> LiveRequests:
        from stillweb.proxy.record.live import LiveRequests

        return self._stack.enter_context(LiveRequests(self.shelf.recorder))

    @property
    def _server(self) -> Any:
        if self.recording:
            self.shelf.sessions.add(self.name)
            if not self._completing:
                return self.shelf.recorder
            self.shelf.replayed.add(self.name)
        if self._gateway is None:
            from stillweb.proxy.replay.gateway import Gateway

            gateway = Gateway(
                self.shelf.snapshot,
                accept=self.accept,
                min_confidence=self.min_confidence,
                ledger=self.ledger,
                virtual_hosts=None if self.recording else self._hosts,
                faults=self.disturbed,
                live=self._live if self.recording else None,
            )
            self._gateway = self._stack.enter_context(gateway)
            self.blocked.allowed.add(f"127.0.0.1:{self._gateway.port}")
        return self._gateway

    @cached_property
    def _hosts(self) -> Any:
        """Virtual hosts of search and reader services, for the gateway and for in-process clients."""
        from stillweb.harness.tools import Toolset, http_hosts

        return http_hosts(
            self._close_at_end(
                Toolset(
                    self.shelf.snapshot,
                    ("serper-mcp",),
                    accept=self.accept,
                    min_confidence=self.min_confidence,
                )
            )
        )

    def _close_at_end(self, toolset: Toolset) -> Toolset:
        """Close the toolset, its browser and its gateway at the end of the test; return the toolset."""

        def close() -> None:
            # on a thread: asyncio.run would replace an event loop of the test's thread
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, toolset.close()).result()

        self._stack.callback(close)
        return toolset

    @property
    def proxy_url(self) -> str:
        """The proxy's URL with the credentials of this test's session."""
        return str(self._server.proxy_url(self.name))

    @property
    def ca_path(self) -> Path:
        """PEM file of the CA certificate that the proxy's clients must trust."""
        return Path(self._server.ca_path)

    @property
    def environment(self) -> dict[str, str]:
        """Copy of this process's environment that makes a program use the proxy."""
        from stillweb.proxy.net.client_env import client_environment

        return client_environment(self.proxy_url, self.ca_path)

    def playwright_options(self) -> dict[str, Any]:
        """Return keyword arguments for Playwright's `chromium.launch`: proxy, trust in its certificate, executable."""
        from stillweb.proxy.browser.browser import find_browser, proxy_settings, spki_hash

        trusted = spki_hash(self.ca_path.read_bytes())
        return {
            "proxy": proxy_settings(self.proxy_url),
            "executable_path": str(find_browser()),
            "args": [f"--ignore-certificate-errors-spki-list={trusted}"],
        }

    def answer(self, request: Request) -> Reply:
        """Return the answer to a request, made in this process."""
        if self._answer is None:
            from stillweb.harness.testing.transports import in_process

            # while recording, the real services answer
            hosts = None if self.recording else self._hosts
            self._answer = in_process(
                self.shelf.snapshot,
                self.ledger,
                self.name,
                self.accept,
                hosts,
                self.disturbed,
                self.min_confidence,
            )
        return self._answer(request)

    def transport(self) -> Any:
        """Return an httpx transport for Client and AsyncClient."""
        from stillweb.harness.testing.transports import SnapshotTransport

        if not self.recording:
            return SnapshotTransport(self.answer)
        if self._completing:
            return SnapshotTransport(self._replay_or_record)
        return _Both(self.proxy_url, ssl.create_default_context(cafile=str(self.ca_path)))

    def mount(self, session: Any) -> Any:
        """Make a requests.Session use the snapshot, or the recorder; return the session."""
        from stillweb.harness.testing.transports import requests_adapter

        if self.recording and not self._completing:
            session.proxies.update({"http": self.proxy_url, "https": self.proxy_url})
            session.verify = str(self.ca_path)
            session.trust_env = False
            return session
        adapter = requests_adapter(self._replay_or_record if self.recording else self.answer)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.trust_env = False
        return session

    def _replay_or_record(self, request: Request) -> Reply:
        reply = self.answer(request)
        if dict(reply.fields).get("Stillweb-Verdict") != "miss":
            self.shelf.replayed.add(self.name)
            return reply
        return self._live.ask(request, self.name)

    def tools(self, *contracts: str, **options: Any) -> Any:
        """Return a tool session over the snapshot (default contract: fetch). Raise UsageError while recording."""
        if self.recording:
            raise UsageError(
                "tools answer from a snapshot; record with `stillweb mcp --record` or through the proxy"
            )
        from stillweb.harness.tools import Toolset, load

        chosen = contracts or ("fetch",)
        if any(":" not in name and load(name).name.startswith(BROWSER) for name in chosen):
            # the test's gateway writes the pages' misses into its ledger, and has the same session
            options.setdefault("gateway", self._server)
        toolset = self._close_at_end(
            Toolset(
                self.shelf.snapshot,
                chosen,
                accept=self.accept,
                min_confidence=self.min_confidence,
                faults=self.disturbed,
                **options,
            )
        )
        return _Watched(toolset.session(self.name), self)

    def misses(self) -> list[Mapping[str, Any]]:
        """Return the ledger entries of relevant misses; empty while recording."""
        if self._ledger is None or self.recording:
            return []
        return [entry for entry in self.ledger.misses() if not entry.get("irrelevant")]

    def expected_wrong(self) -> float:
        """Return the expected number of wrong answers: the sum of 1 - confidence."""
        if self._ledger is None or self.recording:
            return 0.0
        return fsum(entry.get("doubt", 0.0) for entry in self.ledger.entries())

    @property
    def faults(self) -> int:
        """Number of misses and refused network attempts so far."""
        return len(self.misses()) + len(self.blocked.attempts)

    def complaint(self) -> str | None:
        """Return why the test must fail (too many misses, or a network attempt), or None."""
        misses = self.misses()
        if len(misses) > self.max_misses:
            many = f"{pluralize(len(misses), 'request')} {'is' if len(misses) == 1 else 'are'}"
            return f"{many} not in the snapshot ({self.max_misses} allowed)\n{self.misses_text()}"
        if self.max_expected_wrong is not None and self.expected_wrong() > self.max_expected_wrong:
            return (
                f"{self.expected_wrong():.2f} answers are expected to be wrong "
                f"({self.max_expected_wrong:g} allowed); record what was presumed, or raise min_confidence"
            )
        if self.blocked.attempts:
            return f"the network is blocked in this test; it tried\n{self.attempts_text()}"
        return None

    def attempts_text(self) -> str:
        """Return a text with the refused network attempts and the remedy; "" if there are none."""
        attempts = self.blocked.attempts
        return "\n".join([*attempts, REMEDY]) if attempts else ""

    def misses_text(self) -> str:
        """Return a text with the misses, their nearest captures and the differences."""
        lines: list[str] = []
        for entry in self.misses():
            lines.append(f"miss: {entry['method']} {entry['url']}")
            if entry.get("why"):
                lines.append(f"  {entry['why']}")
            for near in entry.get("nearest") or ():
                differs = "; ".join(near["differs"]) or "nothing that is in the key"
                lines.append(f"  nearest: {near['method']} {near['url']}, which differs in {differs}")
            if not entry.get("nearest"):
                lines.append("  nothing like it was captured")
        return "\n".join(lines)


class _Both:
    """Factory of an httpx transport through a proxy, for Client and AsyncClient."""

    def __new__(cls, proxy_url: str, context: Any) -> Any:
        import httpx

        class GatewayTransport(httpx.HTTPTransport, httpx.AsyncBaseTransport):
            """Sync transport; an async request gets an async transport of its own."""

            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                inner = httpx.AsyncHTTPTransport(proxy=proxy_url, verify=context)
                response = await inner.handle_async_request(request)
                content = b"".join([part async for part in response.aiter_raw()])
                await inner.aclose()
                return httpx.Response(
                    response.status_code, headers=response.headers, content=content, request=request
                )

            async def aclose(self) -> None:
                self.close()

        return GatewayTransport(proxy=proxy_url, verify=context)


class _Watched:
    """Tool session that writes its misses into the test's ledger."""

    def __init__(self, session: Any, case: Case) -> None:
        self._session, self._case = session, case

    def list(self) -> Any:
        return self._session.list()

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool; write a miss into the ledger."""
        result = await self._session.call(name, arguments)
        by_gateway = str(result.meta.get("contract", "")).startswith(BROWSER) and result.meta.get("missed")
        if result.meta.get("verdict") == "miss" and not by_gateway:
            self._case.ledger.write(
                {
                    "session": self._case.name,
                    "seq": 0,
                    "method": name,
                    "url": str(result.meta.get("address") or arguments),
                    "verdict": "miss",
                    "status": 0,
                    "nearest": [_near(near) for near in result.meta.get("nearest") or ()],
                }
            )
        return result

    async def close(self) -> None:
        await self._session.close()


def _near(near: Any) -> dict[str, Any]:
    value = near if isinstance(near, dict) else {"url": str(near)}
    return {
        "method": value.get("method", ""),
        "url": value.get("url", ""),
        "differs": list(value.get("differs") or ()),
    }


_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1")
_LONGEST = 65536  # most bytes of a request's head
_PATIENCE = 5.0  # seconds to wait for the head


@contextlib.contextmanager
def refuse_proxies(blocked: NetworkBlock) -> Iterator[None]:
    """Set the proxy variables to a refusing proxy while the context is open, and NO_PROXY to the allowed hosts."""
    names = [name for upper in _VARIABLES for name in (upper, upper.lower())]
    before = {name: os.environ.get(name) for name in names}
    with _Refusing(blocked) as port:
        blocked.allowed.add(f"127.0.0.1:{port}")
        for name in names:
            os.environ[name] = f"http://127.0.0.1:{port}"
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = _direct(blocked.allowed - {f"127.0.0.1:{port}"})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _direct(allowed: set[str]) -> str:
    """Return the value of `NO_PROXY` for the allowed addresses."""
    hosts = {
        host.strip("[]")
        for one in allowed
        for host in (one, one.rpartition(":")[0])
        if host and host != "loopback"
    }
    if "loopback" in allowed or any(map(is_loopback, hosts)):
        hosts.update(_LOOPBACK)
    return ",".join(sorted(hosts))


class _Refusing:
    """Proxy on loopback that reads each request line, reports it to `blocked`, and closes the connection.

    What a browser asks for itself is refused, and not reported: a page has no part in it.
    """

    def __init__(self, blocked: NetworkBlock) -> None:
        self._blocked = blocked
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._awake, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="stillweb-guard", daemon=True)
        self._asking: list[tuple[threading.Thread, socket.socket]] = []

    def __enter__(self) -> int:
        self._thread.start()
        port: int = self._listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for thread, client in self._asking:  # bytes already sent count; more are not awaited
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            thread.join()
        for one in (self._listener, self._awake, self._wake):
            one.close()

    def _listen(self) -> None:
        while self._listener in select.select([self._listener, self._awake], [], [])[0]:
            client, _ = self._listener.accept()
            # one thread for each client, so that a silent client does not block the others
            thread = threading.Thread(target=self._refuse, args=(client,), daemon=True)
            self._asking = [one for one in self._asking if one[0].is_alive()] + [(thread, client)]
            thread.start()

    def _refuse(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(_PATIENCE)
            head = b""
            while b"\n" not in head and len(head) < _LONGEST:
                piece = client.recv(4096)
                if not piece:
                    break
                head += piece
            asked = head.partition(b"\n")[0].decode("latin-1").rsplit(" ", 1)[0].strip()
            tunnel = asked.startswith("CONNECT ")
            place = asked.removeprefix("CONNECT ") if tunnel else asked.rpartition(" ")[2]
            if asked and not errand(f"https://{place}/" if tunnel else place):
                self._blocked.note_attempt(f"asking for {place if tunnel else asked}")
