"""What a browser's context asks of the network: what is under way, what was answered, what failed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.proxy.pages.busy import Signs
from stillweb.proxy.serving.misses import MARKED
from stillweb.proxy.wire.silence import Silence

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebSocket

WORKER = re.compile(
    r"[?&]stillweb-worker(=shared)?(=module)?(?=#|$)"
)  # how freeze.js marks the script of a worker
TAB_LOOKS = 500  # for a tab that was opened: at least ten seconds
_UNHELD = {"eventsource", "websocket", "ping", "cspviolationreport"}  # never end, or nobody waits for them
_COUNTED = {"fetch", "xhr"}  # by the page itself, too (freeze.js)
# s after the head of a `fetch`'s answer in which its body may end unread. Later it holds nothing up: Chromium never says that
# a body has ended which no script reads, and freeze.js says when one is being read.
UNREAD = 0.3


class Answer(NamedTuple):
    """One response, as the browser saw it. `verdict` and `capture` are those of a replaying gateway, else ""."""

    url: str
    kind: str
    status: int
    verdict: str
    capture: str


@dataclass(eq=False)
class Traffic:
    """The requests of one context: which are under way, how many there were, which failed.

    Made before the context has asked for anything. `failures` are (url, resource type, error text) in the order of their ends,
    `answers` in the order in which their headers came.
    """

    context: BrowserContext
    count: int = 0
    unasked: int = 0  # of those, the ones that no script asked for by `fetch` or `XMLHttpRequest`
    ended: int = 0
    navigations: int = 0  # of those, the ones that are to bring a document
    rested: int = 0  # how many of these there were when the page last rested
    steps: int = 0  # done since the page was loaded
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    asked: list[str] = field(
        default_factory=list
    )  # URLs of all requests; of an answer that the browser refuses nothing else is told
    streams: list[str] = field(default_factory=list)
    blocked: bool = False  # a page wanted a service worker
    unloaded: list[str] = field(default_factory=list)  # workers whose script was never loaded
    tabs: int = 0  # that the browser told of, without those that pages were known to open
    silence: Silence = field(default_factory=Silence)
    unread: set[Request] = field(default_factory=set)  # answered, and no script has read the body
    _broken: dict[str, str] = field(default_factory=dict)  # documents that came in part, and why
    _signs: Signs | None = None
    _under_way: dict[Request, float] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.context.on("request", self._begin)
        self.context.on("requestfinished", self._finished)
        self.context.on("requestfailed", self._failed)
        self.context.on("response", self._answered)
        self.context.on("page", self._page)
        for page in self.context.pages:
            page.on("websocket", self._socket)
        self.context.on("console", self._console)

    def _page(self, page: Page) -> None:
        self.tabs += 1
        page.on("websocket", self._socket)

    async def new_page(self) -> Page:
        """A page of our own, which no other opened."""
        self.tabs -= 1
        return await self.context.new_page()

    async def told_of_tabs(self, count: int, stuck: float, seconds: float) -> None:
        """Wait until the browser has told of so many tabs that pages opened; not for ever, as one may be told of by none."""
        deadline = asyncio.get_running_loop().time() + seconds
        for _ in range(TAB_LOOKS):  # looks, not seconds: a busy machine has few
            left = deadline - asyncio.get_running_loop().time()
            if self.tabs >= count or left <= 0:
                break
            await self.idle(stuck, left)  # a tab is told of when its first answer is here
            await asyncio.sleep(0.02)
        self.tabs = max(0, self.tabs - count)

    def signs(self, vain: set[str]) -> Signs:
        """What the pages say of being at work; `vain` are signs that nothing followed, wherever they were seen."""
        if self._signs is None:
            self._signs = Signs(vain)
        return self._signs

    def _socket(self, socket: WebSocket) -> None:
        url = MARKED.sub("", socket.url)
        self.streams.append(url)
        socket.on("socketerror", lambda said: self._unheard(url, str(said)))

    def _unheard(self, url: str, said: str) -> None:
        if "504" in said:  # the gateway's answer to what it does not have
            self.answers.append(Answer(url, "websocket", 504, "miss", ""))

    def _console(self, message: ConsoleMessage) -> None:
        text = message.text
        if text.startswith("stillweb: miss: ws"):
            self.answers.append(Answer(text.removeprefix("stillweb: miss: "), "websocket", 0, "miss", ""))
        elif text.startswith("stillweb: worker: "):
            self.unloaded.append(text.removeprefix("stillweb: worker: "))
        elif "Service Worker registration blocked" in text:  # Playwright's words
            self.blocked = True

    def _begin(self, request: Request) -> None:
        self.count += 1
        self.asked.append(WORKER.sub("", request.url))
        self.unasked += request.resource_type not in _COUNTED
        self.navigations += request.is_navigation_request()
        if request.resource_type == "eventsource":
            self.streams.append(request.url)
        worker = WORKER.search(
            request.url
        )  # the end of a shared one's loading is not told; its page waits for it
        held = request.resource_type not in _UNHELD and not request.url.startswith(("data:", "blob:"))
        if held and not (worker and worker[1]):
            self._under_way[request] = asyncio.get_running_loop().time()

    def _end(self, request: Request) -> None:
        self.ended += 1
        self._under_way.pop(request, None)
        self.unread.discard(request)
        self._changed.set()

    def _leave_unread(self, request: Request) -> None:
        if self._under_way.pop(request, None) is not None:
            self.unread.add(request)
            self._changed.set()

    def _finished(self, request: Request) -> None:
        self._broken.pop(request.url, None)
        self._end(request)

    def _failed(self, request: Request) -> None:
        why = request.failure or ""
        self.failures.append((request.url, request.resource_type, why))
        if request.is_navigation_request() and "ABORTED" not in why:
            self._broken[request.url] = why
        self._end(request)

    def _answered(self, response: Any) -> None:
        headers = response.headers
        if response.request.resource_type == "fetch":
            asyncio.get_running_loop().call_later(UNREAD, self._leave_unread, response.request)
        self.answers.append(
            Answer(
                WORKER.sub("", response.url),
                response.request.resource_type,
                response.status,
                headers.get("stillweb-verdict", ""),
                headers.get("stillweb-capture", ""),
            )
        )

    def of_workers(self, named: Callable[[str], str]) -> list[str]:
        """What is to be said of workers that a page did not get; `named` tells an address without secrets."""
        said = ["wants a service worker: it gets none, while recording and in replay"] if self.blocked else []
        return said + [
            f"a worker was not loaded, while recording and in replay: {named(url)} (a policy may forbid how it is frozen)"
            for url in dict.fromkeys(self.unloaded)
        ]

    def missed(self, since: int = 0) -> list[Answer]:
        """Answers from number `since` on that the snapshot did not have."""
        return [answer for answer in self.answers[since:] if answer.verdict == "miss"]

    def broken(self, url: str) -> str:
        """Why the document that a page shows came in part only, as the browser says it; "" where it is whole."""
        return self._broken.get(url.partition("#")[0], "")

    def lost(self) -> list[str]:
        """URLs that the origin did not give while recording: what replay can't have either."""
        refused = {answer.url for answer in self.answers if answer.status == 502}
        broken = {url for url, _, why in self.failures if "ABORTED" not in why}
        return sorted(refused | broken)

    def under_way(self, stuck: float) -> list[str]:
        """URLs asked for less than `stuck` seconds ago and not answered yet."""
        limit = asyncio.get_running_loop().time() - stuck
        return [request.url for request, since in self._under_way.items() if since >= limit]

    @property
    def hanging(self) -> list[str]:
        """URLs of all requests under way, however old."""
        return [request.url for request in self._under_way]

    async def idle(self, stuck: float, seconds: float) -> bool:
        """Wait until nothing is under way (requests older than `stuck` seconds aside), at most `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.under_way(stuck):
            self._changed.clear()
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, 0.25))
            except TimeoutError:
                continue
        return True
