"""Recording through the same tools: each call does the real thing through the recorder, and what came is stored.

So recording a tool-using agent is running it once. Answers are made by the same code as in replay, from the answer
that has just been stored. Serper's key is read from SERPER_API_KEY and never stored.
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
from stillweb.harness.tools.store import Found, Store, Visit
from stillweb.harness.tools.toolset import Limits, ToolSession, Toolset
from stillweb.harness.tools.workspace import Workspace
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.texts.text import FrozenText, extract

if TYPE_CHECKING:
    import httpx

    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.texts.search import SearchIndex

T = TypeVar("T")
KEY_VARIABLE = "SERPER_API_KEY"
WAIT = 0.05  # seconds of quiet after which an exchange counts as stored
TIMEOUT = 30  # of the real fetch tool
RECORDABLE = ("mcp-fetch", "serper-mcp", "pdf-reader")


class LiveStore(Store):
    """Stands where a snapshot's store stands in replay."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.accept = "exact"
        self._guard = threading.Lock()
        self._answers: dict[tuple[str, int], Response] = {}

    def session(self, name: str) -> Visit:
        """A client of the recorder, under a session name of its own."""
        return LiveVisit(self, name)

    def keep(self, capture: Capture, response: Response) -> None:
        """Remembers an answer for as long as its tool call may look at it."""
        with self._guard:
            self._answers[capture.place] = response
            while len(self._answers) > 64:
                self._answers.pop(next(iter(self._answers)))

    def answer(self, capture: Capture) -> Response:
        """The answer of a capture that was just made."""
        return self._answers[capture.place]

    def text_of(self, capture: Capture) -> FrozenText | None:
        """The text as it will be frozen at sealing: same bytes, same extractor."""
        return extract(capture, self.answer(capture))

    def text_at(self, address: str) -> FrozenText | None:
        """Nothing is frozen yet."""
        return None

    def view_text(self, address: str) -> tuple[FrozenText, str] | None:
        """Views are recorded by `stillweb record`, not by these tools."""
        return None

    def index(self) -> SearchIndex:
        """There is none while recording."""
        raise UsageError("no synthetic search while recording")

    def close(self) -> None:
        """Holds nothing."""


class LiveVisit(Visit):
    """One client's real requests."""

    live = True

    def __init__(self, store: LiveStore, name: str) -> None:
        super().__init__(store, None)
        self._live = store
        self._name = name
        self._client: httpx.Client | None = None

    def client(self) -> httpx.Client:
        """An HTTP client whose only way out is the recorder."""
        if self._client is None:
            import ssl

            import httpx

            recorder = self._live.recorder
            trust = ssl.create_default_context(cafile=str(recorder.ca_path))
            agent = {"User-Agent": load("mcp-fetch").strings["agent"]}
            self._client = httpx.Client(
                proxy=recorder.proxy_url(self._name),
                verify=trust,
                timeout=TIMEOUT,
                headers=agent,
                trust_env=False,
            )
        return self._client

    def follow(self, url: str, headers: Headers = ()) -> Found:
        """As in replay. The real tools have a new client for each page: cookies last from redirect to redirect."""
        self.client().cookies.clear()
        return super().follow(url, headers)

    def look(self, request: Request) -> Found:
        """Asks the real web; the capture found is the one that this has just made."""
        import httpx

        if request.method != "GET":  # no part of a chain of redirects
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
        except (
            httpx.ProxyError
        ):  # the recorder's own refusal, of a tunnel to an origin that it could not reach
            return Found(request.url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Found(request.url, error=repr(error))
        recorder.wait_quiet(self._name, WAIT)
        made = [c for c in recorder.captures_of(self._name, since) if c.method == request.method]
        if not made:  # the recorder's own answer for an origin that it could not reach
            return Found(request.url)
        capture = made[-1]
        fields = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in got.headers.raw)
        self._live.keep(capture, Response(got.status_code, got.reason_phrase, fields, body))
        return Found(request.url, "exact", capture, [capture])

    def read(self, found: Found) -> Response:
        """The answer that has just come."""
        assert found.capture is not None
        return self._live.answer(found.capture)

    def close(self) -> None:
        """Ends the client's connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


class RecordingSession(ToolSession):
    """A tool session that waits for the real web on a thread."""

    def __init__(self, toolset: Toolset, name: str, workspace: Workspace) -> None:
        super().__init__(toolset, name, workspace)
        self._turn = asyncio.Lock()  # one call after the other, so that each finds its own captures

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """As in replay, but real."""
        calling = super().call
        return await self.do(lambda _: asyncio.run(calling(name, arguments)))

    async def do(self, work: Callable[[Visit], T]) -> T:
        """As in replay; on a thread, one after the other."""
        async with self._turn:
            return await asyncio.to_thread(work, self.visit)

    async def close(self) -> None:
        """Ends the session's connections."""
        await super().close()
        if isinstance(self.visit, LiveVisit):
            await asyncio.to_thread(self.visit.close)


class RecordingToolset(Toolset):
    """Tools that record. `recorder` is running, and stays its owner's."""

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
        """A session under its own name in the snapshot."""
        return RecordingSession(self, name, Workspace(folder))


@contextmanager
def recording_toolset(
    path: str | os.PathLike[str],
    contracts: Sequence[str],
    *,
    limits: Limits | None = None,
    private: bool = False,
) -> Iterator[RecordingToolset]:
    """Opens (or makes) the snapshot directory, starts the recorder, and closes both at the end.

    A model chooses what is asked, so addresses that are not public are refused unless `private`.
    Late secrets are looked for when it is sealed: who closes an MCP server waits for nothing.
    """
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.writer import Writer

    with Writer.open(Path(path)) as writer, Recorder(writer, private=private) as recorder:
        yield RecordingToolset(recorder, contracts, limits=limits)
