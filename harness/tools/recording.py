"""Tools that record: each call makes real requests through the recorder.

To record an agent that uses tools, run it once. Results are made by the same code as in replay, from the answer
that was just stored. Serper's key is read from SERPER_API_KEY and never stored.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from stillweb.harness.tools.contract import ToolResult, load
from stillweb.harness.tools.store import FoundPage, Store, Visit
from stillweb.harness.tools.toolset import Limits, ToolSession, Toolset
from stillweb.harness.tools.workspace import Workspace
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.text.text import FrozenText, extract

if TYPE_CHECKING:
    import httpx

    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.text.search import SearchIndex

T = TypeVar("T")
KEY_VARIABLE = "SERPER_API_KEY"
WAIT = 0.05  # seconds of quiet after which an exchange counts as stored
TIMEOUT = 30  # seconds, as in the real fetch tool
RECORDABLE = ("mcp-fetch", "serper-mcp", "pdf-reader")


class LiveStore(Store):
    """Store of a recording, in the place of a snapshot's store in replay."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.accept = "exact"
        self.faults = None
        self.timing, self.slowness = "none", 0.0
        self._guard = threading.Lock()
        self._answers: dict[tuple[str, int], Response] = {}

    def session(self, name: str, *, faults: bool = True) -> Visit:
        return LiveVisit(self, name)

    def keep(self, capture: Capture, response: Response) -> None:
        """Keep an answer in memory for the tool call that made it; the last 64 are kept."""
        with self._guard:
            self._answers[capture.place] = response
            while len(self._answers) > 64:
                self._answers.pop(next(iter(self._answers)))

    def answer(self, capture: Capture) -> Response:
        return self._answers[capture.place]

    def text_of(self, capture: Capture) -> FrozenText | None:
        """Return the text as sealing will freeze it: same bytes, same extractor."""
        return extract(capture, self.answer(capture))

    def text_at(self, address: str) -> FrozenText | None:
        """Return None: no text is frozen while recording."""
        return None

    def view_text(self, address: str) -> tuple[FrozenText, str] | None:
        """Return None: views are recorded by `stillweb record`, not by these tools."""
        return None

    def index(self) -> SearchIndex:
        """Raise UsageError: there is no index while recording."""
        raise UsageError("no synthetic search while recording")

    def close(self) -> None:
        """Do nothing: the recorder belongs to the caller."""


class LiveVisit(Visit):
    """Client that sends its requests to the real web, through the recorder."""

    live = True

    def __init__(self, store: LiveStore, name: str) -> None:
        super().__init__(store, None)
        self._live = store
        self._name = name
        self._client: httpx.Client | None = None

    def client(self) -> httpx.Client:
        """Return the HTTP client, which connects only to the recorder."""
        if self._client is None:
            import ssl

            from stillweb.proxy.net.bounded_clients import BoundedClient

            recorder = self._live.recorder
            trust = ssl.create_default_context(cafile=str(recorder.ca_path))
            agent = {"User-Agent": load("mcp-fetch").strings["agent"]}
            self._client = BoundedClient(
                recorder.proxy_url(self._name), trust, timeout=TIMEOUT, headers=agent
            )
        return self._client

    def follow(self, url: str, headers: Headers = ()) -> FoundPage:
        """Follow redirects as in replay. Clear cookies first: the real tools use a new client for each page."""
        self.client().cookies.clear()
        return super().follow(url, headers)

    def look(self, request: Request) -> FoundPage:
        """Send the request to the real web; return the capture that the recorder made of it."""
        import httpx

        if request.method != "GET":  # such a request never follows a redirect
            self.client().cookies.clear()
        recorder = self._live.recorder
        host = urlsplit(request.url).hostname or ""
        headers = list(request.headers)
        if host.endswith(".serper.dev") and os.environ.get(KEY_VARIABLE):
            headers.append(("X-API-KEY", os.environ[KEY_VARIABLE]))
        since = recorder.writer.event(self._name)
        try:
            with self.client().stream(
                request.method, request.url, headers=headers, content=request.body or None
            ) as got:
                body = b"".join(got.iter_raw())
        except httpx.ProxyError:  # the recorder refused a tunnel because it could not reach the origin
            return FoundPage(request.url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return FoundPage(request.url, error=repr(error))
        recorder.wait_quiet(self._name, WAIT)
        made = [c for c in recorder.captures_of(self._name, since) if c.method == request.method]
        if not made:  # the recorder answered by itself because it could not reach the origin
            return FoundPage(request.url)
        capture = made[-1]
        fields = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in got.headers.raw)
        self._live.keep(capture, Response(got.status_code, got.reason_phrase, fields, body))
        return FoundPage(request.url, "exact", capture, [capture])

    def read(self, found: FoundPage) -> Response:
        assert found.capture is not None
        return self._live.answer(found.capture)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class RecordingSession(ToolSession):
    """Tool session that waits for the real web on a thread."""

    def __init__(self, toolset: Toolset, name: str, workspace: Workspace) -> None:
        super().__init__(toolset, name, workspace)
        self._turn = asyncio.Lock()  # calls run one after the other, so that each finds its own captures

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool, on a thread; its requests go to the real web."""
        calling = super().call
        return await self.do(lambda _: asyncio.run(calling(name, arguments)))

    async def do(self, work: Callable[[Visit], T]) -> T:
        """Run `work` with the session's visit, on a thread, one after the other."""
        async with self._turn:
            return await asyncio.to_thread(work, self.visit)

    async def close(self) -> None:
        await super().close()
        if isinstance(self.visit, LiveVisit):
            await asyncio.to_thread(self.visit.close)


class RecordingToolset(Toolset):
    """Tools that record. `recorder` must be running; its owner closes it."""

    def __init__(
        self, recorder: Recorder, contracts: Sequence[str] = ("fetch",), *, limits: Limits | None = None
    ) -> None:
        for name in contracts:
            full = load(name).name
            if full.partition("@")[0] not in RECORDABLE:
                raise UsageError(
                    f"{full} can't record; {', '.join(RECORDABLE)} can ('stillweb record' drives a browser)"
                )
        self.recorder = recorder
        snapshot: Any = None
        super().__init__(snapshot, contracts, limits=limits, store=LiveStore(recorder))

    def session(self, name: str, folder: Path | None = None) -> RecordingSession:
        """Return a session; its captures have its name in the snapshot."""
        return RecordingSession(self, name, Workspace(folder))


@contextmanager
def recording_toolset(
    path: str | os.PathLike[str],
    contracts: Sequence[str],
    *,
    limits: Limits | None = None,
    private: bool = False,
) -> Iterator[RecordingToolset]:
    """Open (or create) the snapshot directory, start the recorder, and close both at the end.

    A model chooses the addresses, so addresses that are not public are refused unless `private`.
    Late secrets are searched for by `seal`, not here: an MCP server must close at once.
    """
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.writer import Writer

    provenance = provenance_now(f"tools {' '.join(contracts)}", {"private": private})
    with Writer.open(path, provenance=provenance) as writer, Recorder(writer, private=private) as recorder:
        yield RecordingToolset(recorder, contracts, limits=limits)
