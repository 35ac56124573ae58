"""The network traffic of a browser context: requests under way, answers and failures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.proxy.browser.busy import Signs
from stillweb.proxy.net.silence import Silence
from stillweb.proxy.replay.misses import MARKED

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebSocket

# how freeze.js marks the script of a worker
WORKER = re.compile(r"[?&]stillweb-worker(=shared)?(=module)?(?=#|$)")
TAB_LOOKS = 500  # checks for a tab that was opened: at least ten seconds
_UNHELD = {"eventsource", "websocket", "ping", "cspviolationreport"}  # never end, or nobody waits for them
_COUNTED = {"fetch", "xhr"}  # the page counts these itself, too (freeze.js)
# s after the head of a `fetch`'s answer in which its body may end unread. Later it holds nothing up: Chromium
# never reports the end of a body that no script reads, and freeze.js reports when one is being read.
UNREAD = 0.3


class Answer(NamedTuple):
    """A response, as the browser saw it.

    `verdict` and `capture` come from a replaying gateway, else they are "".
    """

    url: str
    kind: str
    status: int
    verdict: str
    capture: str


@dataclass(eq=False)
class Traffic:
    """The requests of one context: those under way, their number, and those that failed.

    Make it before the context has sent a request. `failures` are (url, resource type, error text) in the
    order of their ends, `answers` come in the order of their headers.
    """

    context: BrowserContext
    count: int = 0
    unasked: int = 0  # those of them that no script sent by `fetch` or `XMLHttpRequest`
    ended: int = 0
    navigations: int = 0  # those of them that load a document
    rested: int = 0  # `navigations` when the page last rested
    steps: int = 0  # steps done since the page was loaded
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    # URLs of all requests; of an answer that the browser refuses, nothing else is reported
    asked: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    blocked: bool = False  # a page wanted a service worker
    unloaded: list[str] = field(default_factory=list)  # workers whose script was never loaded
    tabs: int = 0  # tabs that the browser reported, without those that pages are known to have opened
    silence: Silence = field(default_factory=Silence)
    unread: set[Request] = field(default_factory=set)  # requests answered, whose body no script has read
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
        """Open a page of our own, which no other page opened."""
        self.tabs -= 1
        return await self.context.new_page()

    async def told_of_tabs(self, count: int, stuck: float, seconds: float) -> None:
        """Wait until the browser has reported so many tabs that pages opened.

        The wait is bounded, as a tab may never be reported.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        for _ in range(TAB_LOOKS):  # a number of checks, not seconds: a busy machine has few
            left = deadline - asyncio.get_running_loop().time()
            if self.tabs >= count or left <= 0:
                break
            await self.idle(stuck, left)  # a tab is reported when its first answer is here
            await asyncio.sleep(0.02)
        self.tabs = max(0, self.tabs - count)

    def signs(self, vain: set[str]) -> Signs:
        """Return the busy signs of the context's pages.

        `vain` holds signs that nothing followed, wherever they were seen.
        """
        if self._signs is None:
            self._signs = Signs(vain)
        return self._signs

    def _socket(self, socket: WebSocket) -> None:
        url = MARKED.sub("", socket.url)
        self.streams.append(url)
        socket.on("socketerror", lambda said: self._unheard(url, str(said)))

    def _unheard(self, url: str, said: str) -> None:
        if "504" in said:  # the gateway's answer to a socket that it does not have
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
        # the end of a shared worker's loading is not reported; its page waits for it
        worker = WORKER.search(request.url)
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
        """Return notes on the workers that a page did not get. `named` returns an address without secrets."""
        said = ["wants a service worker: it gets none, while recording and in replay"] if self.blocked else []
        return said + [
            f"a worker was not loaded, while recording and in replay: {named(url)} (a policy may forbid how it is frozen)"
            for url in dict.fromkeys(self.unloaded)
        ]

    def missed(self, since: int = 0) -> list[Answer]:
        """Return the answers from number `since` on that are misses."""
        return [answer for answer in self.answers[since:] if answer.verdict == "miss"]

    def broken(self, url: str) -> str:
        """Return the browser's reason why a page's document is incomplete, "" if it is whole."""
        return self._broken.get(url.partition("#")[0], "")

    def lost(self) -> list[str]:
        """Return the URLs that the origin did not answer while recording, so that replay lacks them too."""
        refused = {answer.url for answer in self.answers if answer.status == 502}
        broken = {url for url, _, why in self.failures if "ABORTED" not in why}
        return sorted(refused | broken)

    def under_way(self, stuck: float) -> list[str]:
        """Return the URLs requested less than `stuck` seconds ago and not answered yet."""
        limit = asyncio.get_running_loop().time() - stuck
        return [request.url for request, since in self._under_way.items() if since >= limit]

    @property
    def hanging(self) -> list[str]:
        """The URLs of all requests under way, however old."""
        return [request.url for request in self._under_way]

    async def idle(self, stuck: float, seconds: float) -> bool:
        """Wait until no request is under way, at most `seconds`. Return False if the time is up.

        Requests older than `stuck` seconds do not count.
        """
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
