"""Settling of a page: its limits, its requests and streams, and the signs that it is still at work."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.errors import answered
from stillweb.proxy.browser.newest import Newest
from stillweb.proxy.net.stream_idle import Silence
from stillweb.proxy.replay.misses import MARKED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping

    from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebSocket


@dataclass(frozen=True, slots=True)
class SettleTimeouts:
    """The limits of the wait for a page.

    `virtual` is the page's own time granted after its last request (ms), `total` the most in one settling
    (ms). `real` bounds the settling by this machine's clock (s). A request older than `stuck` (s) holds
    nothing up, nor does a web socket's message. A page with streams that says it is at work is waited for
    `busy` s while nothing comes; `vain` holds such signs that nothing followed.
    """

    virtual: float = 3000.0
    total: float = 15000.0
    real: float = 60.0
    stuck: float = 8.0
    busy: float = 30.0
    vain: set[str] = field(default_factory=set, compare=False)


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The outcome of a settling. `reason` says in a few words why the page was not quiet, "" if it was."""

    quiet: bool
    moved: float
    rounds: int
    reason: str = ""


@functools.cache
def _script() -> str:
    return files("stillweb.proxy.browser").joinpath("busy.js").read_text(encoding="utf-8")


class Signs:
    """The busy signs on the pages of one context.

    `vain` holds the signs, of all contexts, that nothing followed.
    """

    def __init__(self, ignored: set[str]) -> None:
        self._vain = ignored
        self._usual: set[str] | None = None  # what moved when the page last rested; None: it has never rested

    async def on(self, page: Page) -> list[str]:
        """Return the signs that the page is at work, without what has moved since before it last rested."""
        says, moves = await _read(page)
        moving = moves - self._usual if self._usual is not None else set()
        return sorted((says | moving) - self._vain)

    async def accept(self, page: Page, ignored: list[str]) -> None:
        """Note that the page was accepted as it is, in spite of the signs `ignored`."""
        says, moves = await _read(page)
        self._usual = moves
        here = {one for one in self._vain if one.startswith(_origin(page))}
        self._vain -= here - says - moves
        self._vain |= set(ignored)


async def _read(page: Page) -> tuple[set[str], set[str]]:
    where = _origin(page)
    says: set[str] = set()
    moves: set[str] = set()
    for frame in page.frames:
        try:
            found: dict[str, Any] = await answered(frame.evaluate(_script()))
        except PlaywrightError:
            continue  # it goes away, or shows no document
        says |= {f"{where} {one}" for one in found["says"]}
        moves |= {f"{where} {one}" for one in found["moves"]}
    return says, moves


def _origin(page: Page) -> str:
    return "/".join(page.main_frame.url.split("/", 3)[:3])


# how freeze.js marks the script of a worker
WORKER = re.compile(r"[?&]stillweb-worker(=shared)?(=module)?(?=#|$)")
TAB_LOOKS = 500  # checks for a tab that was opened: at least ten seconds
_UNTOLD = {"ping", "cspviolationreport"}
_UNHELD = {"eventsource", "websocket", *_UNTOLD}  # never end, or nobody waits for them
_COUNTED = {"fetch", "xhr"}  # the page counts these itself, too (freeze.js)
# s after the head of an answer to `fetch` or XMLHttpRequest, or of a camera's, in which its body may end unread. Later it holds up only a
# page that says (freeze.js) that it reads one: Chromium never reports the end of a `fetch`'s body that no script reads.
UNREAD = 0.3
# Kinds of answers that no script waits for ("other": prefetches). Chromium reports the head of a font only at its end.
_DRAWN = {"image", "media", "other"}
STOPPED = 1.0  # s in which nothing comes of such an answer that has stopped
# Chromium reads a long film only as it plays (networkState is NETWORK_IDLE in between), and so never reports the end of its body.
_PLAYERS_REST = """() => {
  const players = [...document.querySelectorAll("video, audio")];
  return players.length > 0 && players.every((one) => one.networkState !== HTMLMediaElement.NETWORK_LOADING);
}"""
# Pages that a context may have open; more are closed. Of one document freeze_tabs.js blocks more than 20.
MOST_PAGES = 50
MOST_REQUESTS = 20_000  # requests of a context that are kept; a page may send them in a loop


class BrowserResponse(NamedTuple):
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
    failures: Newest[tuple[str, str, str]] = field(
        default_factory=lambda: Newest(MOST_REQUESTS, lambda failure: len(failure[0]))
    )
    answers: Newest[BrowserResponse] = field(
        default_factory=lambda: Newest(MOST_REQUESTS, lambda answer: len(answer.url))
    )
    # URLs of all requests; of an answer that the browser refuses, nothing else is reported
    asked: Newest[str] = field(default_factory=lambda: Newest(MOST_REQUESTS, len))
    streams: Newest[str] = field(default_factory=lambda: Newest(MOST_REQUESTS, len))
    blocked: bool = False  # a page wanted a service worker
    # workers whose script was never loaded
    unloaded: Newest[str] = field(default_factory=lambda: Newest(MOST_REQUESTS, len))
    tabs: int = 0  # tabs that the browser reported, without those that pages are known to have opened
    crowded: bool = False  # windows that pages opened were blocked or closed, since there are too many
    silence: Silence = field(default_factory=Silence)
    # returns how many bytes have come of the answers under way; None without a recorder
    bytes_received: Callable[[], int] | None = None
    # requests answered whose body has not ended, and when they were sent; a script may be reading it
    unread: dict[Request, float] = field(default_factory=dict)
    # pings and reports without an end: no script ever sees their answers
    untold: set[Request] = field(default_factory=set)
    _broken: dict[str, str] = field(default_factory=dict)  # documents that came in part, and why
    _signs: Signs | None = None
    _ending: set[asyncio.Future[None]] = field(default_factory=set)  # of surplus pages and values of messages
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
        page.on("close", self._closed)
        if len(self.context.pages) > MOST_PAGES:
            self.crowded = True
            self._end_later(page.close())

    def _end_later(self, end: Coroutine[Any, Any, None]) -> None:
        ending = asyncio.ensure_future(_ended(end))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _closed(self, page: Page) -> None:
        """End the requests of a closed tab: the browser reports no end of them."""
        for request in [*self._under_way]:
            if _tab_of(request) is page:
                self._end(request)

    async def new_page(self) -> Page:
        """Open a page of our own, which no other page opened."""
        self.tabs -= 1
        return await self.context.new_page()

    async def wait_for_tabs(self, count: int, stuck: float, seconds: float) -> None:
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

    def signs(self, ignored: set[str]) -> Signs:
        """Return the busy signs of the context's pages.

        `ignored` holds signs that nothing followed, wherever they were seen.
        """
        if self._signs is None:
            self._signs = Signs(ignored)
        return self._signs

    def _socket(self, socket: WebSocket) -> None:
        url = MARKED.sub("", socket.url)
        self.streams.append(url)
        socket.on("socketerror", lambda said: self._unheard(url, str(said)))

    def _unheard(self, url: str, error: str) -> None:
        if "504" in error:  # the gateway's answer to a socket that it does not have
            self.answers.append(BrowserResponse(url, "websocket", 504, "miss", ""))

    def _console(self, message: ConsoleMessage) -> None:
        for value in message.args:  # driver and client keep each, with its text, as long as the page is open
            self._end_later(value.dispose())
        text = message.text
        if text.startswith("stillweb: miss: ws"):
            self.answers.append(
                BrowserResponse(text.removeprefix("stillweb: miss: "), "websocket", 0, "miss", "")
            )
        elif text.startswith("stillweb: worker: "):
            self.unloaded.append(text.removeprefix("stillweb: worker: "))
        elif text == "stillweb: windows: blocked":
            self.crowded = True
        elif "Service Worker registration blocked" in text:  # Playwright's words
            self.blocked = True

    def _begin(self, request: Request) -> None:
        self.count += 1
        self.asked.append(MARKED.sub("", request.url))
        self.unasked += request.resource_type not in _COUNTED
        self.navigations += request.is_navigation_request()
        if request.resource_type == "eventsource":
            self.streams.append(request.url)
        # the end of a shared worker's loading is not reported; its page waits for it
        worker = WORKER.search(request.url)
        held = request.resource_type not in _UNHELD and not request.url.startswith(("data:", "blob:"))
        if request.resource_type in _UNTOLD:
            self.untold.add(request)
        if held and not (worker and worker[1]):
            self._under_way[request] = asyncio.get_running_loop().time()

    def _end(self, request: Request) -> None:
        self.ended += 1
        self._under_way.pop(request, None)
        self.unread.pop(request, None)
        self.untold.discard(request)
        self._changed.set()

    def _leave_unread(self, request: Request) -> None:
        since = self._under_way.pop(request, None)
        if since is not None:
            self.unread[request] = since
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
        pictures = headers.get("content-type", "").startswith("multipart/x-mixed-replace")  # a camera's
        if pictures or response.request.resource_type in _COUNTED:
            asyncio.get_running_loop().call_later(UNREAD, self._leave_unread, response.request)
        if response.request.resource_type == "media":
            self._end_later(self._play(response.request))
        if response.request.resource_type in _DRAWN:
            self._end_later(self._stop(response.request))
        self.answers.append(
            BrowserResponse(
                MARKED.sub("", response.url),
                response.request.resource_type,
                response.status,
                headers.get("stillweb-verdict", ""),
                headers.get("stillweb-capture", ""),
            )
        )

    async def _play(self, request: Request) -> None:
        """Wait no longer for a film or sound once the players have as much of it as they want for now."""
        while request in self._under_way:
            if await request.frame.evaluate(_PLAYERS_REST):
                self._leave_unread(request)
                return
            await asyncio.sleep(UNREAD)

    async def _stop(self, request: Request) -> None:
        """Wait no longer for a picture or film of which nothing more comes."""
        loop = asyncio.get_running_loop()
        before = -1
        while self.bytes_received is not None and request in self._under_way:
            come, begun = self.bytes_received(), loop.time()
            if come == before:
                self._under_way[request] = -math.inf  # like a request that is stuck
                self._changed.set()
                return
            await asyncio.sleep(STOPPED)
            delayed = loop.time() - begun > 1.5 * STOPPED  # this process, and so perhaps the recorder
            before = -1 if delayed else come

    def of_workers(self, named: Callable[[str], str]) -> list[str]:
        """Return notes on the workers that a page did not get. `named` returns an address without secrets."""
        said = (
            ["asks for a service worker: none is run, while recording and in replay"] if self.blocked else []
        )
        return said + [
            f"a worker was not loaded, neither while recording nor in replay: {named(url)} (a policy may forbid how it is frozen)"
            for url in dict.fromkeys(self.unloaded)
        ]

    def missed(self, since: int = 0) -> list[BrowserResponse]:
        """Return the answers from number `since` on that are misses."""
        return [answer for answer in self.answers[since:] if answer.verdict == "miss"]

    @property
    def left_out(self) -> int:
        """The number of requests that are no longer kept."""
        return max(self.asked.left_out, self.answers.left_out)

    def incomplete_reason(self, url: str) -> str:
        """Return the browser's reason why a page's document is incomplete, "" if it is whole."""
        return self._broken.get(url.partition("#")[0], "")

    def lost_urls(self) -> list[str]:
        """Return the URLs that the origin did not answer while recording, so that replay lacks them too."""
        refused = {answer.url for answer in self.answers if answer.status == 502}
        broken = {url for url, _, why in self.failures if "ABORTED" not in why}
        return sorted(refused | broken)

    def under_way(self, stuck: float) -> list[str]:
        """Return the URLs requested less than `stuck` seconds ago and not answered yet."""
        limit = asyncio.get_running_loop().time() - stuck
        return [request.url for request, since in self._under_way.items() if since >= limit]

    def hanging(self, reading: float = 0) -> list[str]:
        """Return the URLs of all requests under way, however old.

        With `reading`, the page reads bodies: those of requests sent more than so many seconds ago are
        under way, too.
        """
        limit = asyncio.get_running_loop().time() - reading
        read = [request.url for request, since in self.unread.items() if reading and since < limit]
        return [request.url for request in self._under_way] + read

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


async def _ended(end: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(PlaywrightError):  # the context is gone
        await end


def _tab_of(request: Request) -> Page | None:
    try:
        return request.frame.page
    except PlaywrightError:  # a worker's, or a tab's that the browser has not reported yet
        return None


LISTENINGS = 6  # times that streams are listened to for silence, at most
BARE = 50  # characters of text up to which a page with streams may still wait for its content
_TEXT = """() => {
  const roots = [document];
  for (const root of roots) for (const e of root.querySelectorAll("*")) if (e.shadowRoot) roots.push(e.shadowRoot);
  if (roots.some((root) => root.querySelector("iframe,frame,canvas,video,object,embed"))) return null;
  const parts = roots.flatMap((root) => root === document ? [document.body] : [...root.children]);
  return parts.reduce((sum, e) => sum + (e && e.checkVisibility() ? e.innerText || "" : "").trim().length, 0);
}"""


class PageStreams:
    """The streams of a page during one settling, which ends at the loop's time `deadline`."""

    def __init__(self, page: Page, traffic: Traffic, patience: SettleTimeouts, deadline: float) -> None:
        self._page = page
        self._traffic = traffic
        self._patience = patience
        self._deadline = deadline
        self._signs = traffic.signs(patience.vain)
        self._count = 0
        self._until = 0.0  # when a page that is nearly empty, or has asked in vain, is accepted as it is
        self.busy: list[str] = []  # signs that the page is at work, though nothing came of it

    async def brings(self, state: Mapping[str, Any], ask: Callable[[], Awaitable[Any]]) -> bool:
        """Return True if the streams send something to a page in that `state`.

        How long they are listened to depends on what the page shows.
        """
        if self._count >= LISTENINGS:
            return False
        self._count += 1
        silence, loop = self._traffic.silence, asyncio.get_running_loop()
        if not await silence.holds(state, ask):
            return True
        # its content comes by the stream, from a server that is still at work
        if state["silent"] or await _bare(self._page, talked=silence.has_traffic()):
            self._until = self._until or loop.time() + self._patience.stuck
            if await silence.breaks(state, ask, min(self._until, self._deadline)):
                return True
        self.busy = await self._signs.on(self._page)
        if self.busy and await silence.breaks(
            state, ask, min(loop.time() + self._patience.busy, self._deadline)
        ):
            self._count = 0  # as often as the server has news of its work
            return True
        return False

    async def accept(self) -> str:
        """Note that the page is accepted as it is. Return its sign of being at work, "" without one."""
        await self._signs.accept(self._page, self.busy)
        return f"says that it is still loading: {self.busy[0].partition(' ')[2]}" if self.busy else ""


async def _bare(page: Page, *, talked: bool) -> bool:
    """Return True if a page shows nothing, or no more than the names of a few buttons and its streams have talked."""
    try:
        length = await answered(page.evaluate(_TEXT))
    except PlaywrightError:
        return False  # it goes away
    return length is not None and length < (BARE if talked else 1)
