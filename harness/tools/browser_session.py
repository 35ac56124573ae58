"""Browser of one agent on a snapshot: its context, its tabs, and navigation.

The tool calls are in browser.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter, deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.browser_text import Sections, code_of, fill_string, matching
from stillweb.harness.tools.workspace import Workspace
from stillweb.proxy.browser.driver import MOST_DOWNLOADS, Driver
from stillweb.proxy.browser.errors import PageFailed, forbidden_scheme
from stillweb.proxy.browser.freeze import settle
from stillweb.proxy.browser.newest import Newest
from stillweb.proxy.browser.page_snapshot import accessible_root
from stillweb.proxy.browser.settle import SettleTimeouts, Traffic
from stillweb.proxy.browser.uploads import contents_of
from stillweb.proxy.replay.misses import MARKED, MissedRequest, masked_url, one_name, unseen_by_browser
from stillweb.snapshots.evidence.confidence import Confidence, combine
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import id_in

if TYPE_CHECKING:
    from playwright.async_api import (
        BrowserContext,
        ConsoleMessage,
        Dialog,
        Download,
        FileChooser,
        Locator,
        Page,
        Request,
        Response,
    )

    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.snapshots.snapshot import Snapshot


LEVELS = ("error", "warning", "info", "debug")
LONGEST = 1 << 16  # characters shown of a message, a title or a dialog
MOST_REQUESTS = 1000  # requests of a page that are kept
MOST_MESSAGES, MOST_TEXT = 1000, 1 << 20  # messages of a console that are kept, and their characters


def bounded(text: str) -> str:
    """Return a text of a page's own, cut and marked if it is too long to be told to a model."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Message:
    """Message of the console, or an uncaught error of the page."""

    kind: str
    text: str
    place: str

    @property
    def level(self) -> str:
        """Severity of the message, one of LEVELS."""
        if self.kind in ("error", "assert", "pageerror"):
            return "error"
        return self.kind if self.kind in ("warning", "debug") else "info"

    def __str__(self) -> str:
        if self.kind == "pageerror":
            return self.text
        return f"[{self.kind.upper()}] {self.text} @ {self.place}"


@dataclass(eq=False)
class Console:
    """Newest messages of a console, within bounds, and the numbers of all its messages by level."""

    messages: deque[Message] = field(default_factory=deque)
    levels: Counter[str] = field(default_factory=Counter)
    size: int = 0  # characters of `kept`

    def add(self, message: Message) -> None:
        """Keep a message, and drop the oldest ones beyond the bounds."""
        self.levels[message.level] += 1
        self._keep(message)

    def extend(self, later: Console) -> None:
        self.levels += later.levels
        for message in later.messages:
            self._keep(message)

    def _keep(self, message: Message) -> None:
        self.messages.append(message)
        self.size += len(str(message))
        while len(self.messages) > MOST_MESSAGES or self.size > MOST_TEXT:
            self.size -= len(str(self.messages.popleft()))


@dataclass(eq=False)
class Tab:
    """Page with its console, its requests since the last load, and the dialog that blocks it."""

    page: Page
    messages: Console = field(default_factory=Console)
    older: Console = field(default_factory=Console)
    requests: Newest[Request] = field(default_factory=lambda: _requests())
    dialog: Dialog | None = None
    dialog_opened: asyncio.Event = field(default_factory=asyncio.Event)  # set while a dialog is open
    chooser: FileChooser | None = None
    chooser_opened: asyncio.Event = field(default_factory=asyncio.Event)
    status: tuple[int, str] | None = None
    document: Request | None = None  # the last document request that was answered
    header: list[str] = field(default_factory=list)  # the lines of the "Page" section in the last result

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", self._error)
        self.page.on("request", self._request)
        self.page.on("response", self._response)
        self.page.on("dialog", self._dialog)
        self.page.on("filechooser", self._chooser)

    def _console(self, message: ConsoleMessage) -> None:
        place = message.location
        where = f"{MARKED.sub('', place.get('url', ''))}:{place.get('lineNumber', 0)}"
        self.messages.add(Message(message.type, bounded(message.text), bounded(where)))

    def _error(self, error: PlaywrightError) -> None:
        self.messages.add(Message("pageerror", bounded(error.stack or error.message), ""))

    def _request(self, request: Request) -> None:
        main = request.is_navigation_request() and request.frame == self.page.main_frame
        if main and request.redirected_from is None:
            self.older.extend(self.messages)
            self.messages, self.requests, self.status = Console(), _requests(), None
        self.requests.append(request)

    def _response(self, response: Response) -> None:
        request = response.request
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self.status = (response.status, response.status_text)
            self.document = request

    def _dialog(self, dialog: Dialog) -> None:
        self.dialog = dialog
        self.dialog_opened.set()

    def _chooser(self, chooser: FileChooser) -> None:
        self.chooser = chooser
        self.chooser_opened.set()

    async def wait_for_chooser(self) -> None:
        """Wait for the file chooser that an element just opened."""
        with contextlib.suppress(TimeoutError):  # the page may have stopped the click
            await asyncio.wait_for(self.chooser_opened.wait(), 10)

    def take_chooser(self) -> FileChooser | None:
        """Return the file chooser and forget it."""
        chooser, self.chooser = self.chooser, None
        self.chooser_opened.clear()
        return chooser

    @property
    def is_held(self) -> bool:
        """True if a dialog or a file chooser must be answered first."""
        return self.dialog is not None or self.chooser is not None

    def came_as_file(self) -> bool:
        """Return True, once, if the last document became a download instead of a page."""
        if self.document is None or self.document.failure is None:
            return False
        self.document = None
        return True

    def forget_dialog(self) -> None:
        """Forget the dialog after it was answered."""
        self.dialog = None
        self.dialog_opened.clear()

    @property
    def url(self) -> str:
        return self.page.url

    async def title(self) -> str:
        """Return the page's title; "" while a dialog or a file chooser is open."""
        if self.is_held:
            return ""
        try:
            return bounded(await asyncio.wait_for(self.page.title(), 60))
        except (PlaywrightError, TimeoutError):
            return ""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of errors and warnings on the console since the last load."""
        return self.messages.levels["error"], self.messages.levels["warning"]

    async def lines(self) -> list[str]:
        """Return the lines of the "Page" section."""
        title = await self.title()
        errors, warnings = self.counts()
        lines = [f"- Page URL: {self.url}"]
        if title:
            lines.append(f"- Page Title: {title}")
        if self.status is not None and not 200 <= self.status[0] < 300:
            lines.append(f"- HTTP status: {self.status[0]}{f' {self.status[1]}' if self.status[1] else ''}")
        if errors or warnings:
            lines.append(f"- Console: {errors} errors, {warnings} warnings")
        return lines

    def console(self, level: str, everything: bool) -> str:
        errors, warnings = self.counts()
        shown, total = Console(), self.messages.levels.total()
        for console in (self.older, self.messages) if everything else (self.messages,):
            shown.extend(console)
        chosen = LEVELS[: LEVELS.index(level) + 1]
        lines = [str(message) for message in shown.messages if message.level in chosen]
        count = sum(shown.levels[one] for one in chosen)
        head = [fill_string("messages", total=total, errors=errors, warnings=warnings)]
        if len(lines) != total:
            head.append(fill_string("messages_shown", shown=len(lines), level=level))
        if count > len(lines):
            head.append(f"Left out: {count - len(lines)} older messages")
        return "\n".join([*head, "", *lines])

    async def network(self, static: bool, pattern: str | None) -> str | None:
        """Return the result of `browser_network_requests`, or None for an invalid pattern. Raise EndlessPattern."""
        urls = [request.url for request in self.requests]
        matches = await asyncio.to_thread(matching, pattern, "", urls) if pattern else [True] * len(urls)
        if matches is None:
            return None
        left_out = self.requests.left_out
        lines = [f"Left out: {left_out} older requests"] if left_out else []
        hidden = 0
        for number, (request, matched) in enumerate(
            zip([*self.requests], matches, strict=False), start=left_out + 1
        ):
            response = await _response_of(request)
            fine = response is not None and response.status < 400 and request.failure is None
            if not static and fine and request.resource_type not in ("fetch", "xhr"):
                hidden += 1
                continue
            if not matched:
                continue
            lines.append(f"{number}. {_request_line(request, response)}")
        if hidden:
            plural, them = ("", "it") if hidden == 1 else ("s", "them")
            lines.append(fill_string("static_hidden", count=hidden, s=plural, them=them))
        return "\n".join(lines)

    async def request(self, number: int, part: str | None) -> str | None:
        """Return the result of `browser_network_request`; None if there is no such request."""
        if not self.requests.left_out < number <= len(self.requests):
            return None
        request = self.requests[number - 1]
        response = await _response_of(request)
        sent = {k: v for k, v in request.headers.items() if not k.startswith("proxy-")}
        received = response.headers if response is not None else {}
        received = {k: v for k, v in received.items() if not k.startswith("stillweb-")}
        if part == "request-headers":
            return "\n".join(f"{k}: {v}" for k, v in sent.items())
        if part == "request-body":
            return request.post_data or ""
        if part == "response-headers":
            return "\n".join(f"{k}: {v}" for k, v in received.items())
        if part == "response-body":
            try:
                return await response.text() if response is not None else ""
            except (PlaywrightError, UnicodeDecodeError):
                return ""
        status = (
            f"[{response.status}] {response.status_text}" if response else f"[FAILED] {request.failure or ''}"
        )
        out = [
            f"#{number} [{request.method.upper()}] {_shown(request.url)}",
            "",
            "  General",
            f"    status:    {status}",
        ]
        out.append(f"    type:      {request.resource_type}")
        if received.get("content-type"):
            out.append(f"    mimeType:  {received['content-type'].partition(';')[0].strip()}")
        for title, headers in (("Request headers", sent), ("Response headers", received)):
            if headers:
                out += ["", f"  {title}", *(f"    {k}: {v}" for k, v in headers.items())]
        hints = [
            f'Call browser_network_request with part="{p}-body" to read the {p} body.'
            for p in ("request", "response")
        ]
        kept = hints[:1] if request.post_data else []
        kept += hints[1:] if response is not None and response.status not in (204, 304) else []
        return "\n".join([*out, "", *kept] if kept else out)


def _requests() -> Newest[Request]:
    return Newest(MOST_REQUESTS, lambda request: len(request.url))


async def _response_of(request: Request) -> Response | None:
    try:
        return await asyncio.wait_for(request.response(), 10)
    except (PlaywrightError, TimeoutError):
        return None


def _shown(url: str) -> str:
    return MARKED.sub("", url) if not url.startswith("data:") or len(url) < 100 else url[:97] + "..."


def _request_line(request: Request, response: Response | None) -> str:
    line = f"[{request.method.upper()}] {_shown(request.url)}"
    if response is not None:
        return f"{line} => [{response.status}] {response.status_text}"
    return f"{line} => [FAILED] {request.failure}" if request.failure else line


ACTION_MS = 5_000  # the contract's time limit of an action, which its error names
GIVEN_MS = 30_000  # the time that an action really gets, so that a slow machine does not change an answer
NO_PAGE = "chrome-error://chromewebdata/"  # Chromium's page for an address that it could not load
NEVER_MISSED = {"ping", "beacon", "cspviolationreport", "manifest"}  # kinds that don't change a page


class Problem(Exception):
    """Error of a tool; the text is the whole "Error" section.

    With `bare` the "Modal state" section is left out. `miss` is an address that the snapshot lacks and that was not
    requested from the gateway. `verdict` is the verdict of the page; only `failed:…` is kept.
    """

    def __init__(self, text: str, *, bare: bool = False, miss: str | None = None, verdict: str = "") -> None:
        super().__init__(text)
        self.bare, self.miss = bare, miss
        self.failed = verdict if verdict.startswith("failed:") else None


@dataclass(eq=False)
class Browsing:
    """Browser context and its tabs. All methods but `prepare` and `close` must run in the browser's event loop."""

    shared: SharedBrowser
    gateway: Gateway
    snapshot: Snapshot | None
    name: str
    profile: Profile
    patience: SettleTimeouts = field(default_factory=SettleTimeouts)
    tabs: list[Tab] = field(default_factory=list)
    current: int = 0
    context: BrowserContext | None = None
    traffic: Traffic | None = None
    answers_reported: int = 0  # number of answers that calls have reported
    left_out: int = 0  # number of answers that were dropped, as calls have reported
    misses_reported: int = 0  # number of the gateway's misses that calls have reported
    reported_faults: int = 0  # likewise, of answers that faults changed
    doubted: bool = False  # True if an answer was ambiguous and no call has reported it
    unsure: Confidence | None = (
        None  # in the answers that are less than certain and that no call has reported
    )
    # reported misses that the browser has not seen yet
    misses_ahead: Counter[str] = field(default_factory=Counter)
    workspace: Workspace = field(default_factory=Workspace)  # its files may be given to pages
    clipboard: str = ""  # text on the session's clipboard
    # names of downloaded files that no call has reported
    downloads: Newest[str] = field(default_factory=lambda: Newest(MOST_DOWNLOADS, len))
    _has_downloads: asyncio.Event = field(default_factory=asyncio.Event)  # set if `downloads` is not empty
    _lock: asyncio.Lock | None = None

    async def prepare(self) -> None:
        """Open context and page before the first call, which waits for it. Raise what that call would raise."""
        await self.shared.run(self._prepare())

    async def _prepare(self) -> None:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            await self._tab_ready()

    async def close(self) -> None:
        await self.shared.run(self._close())

    async def _close(self) -> None:
        context, self.context = self.context, None
        self.tabs, self.current, self.answers_reported, self.left_out = [], 0, 0, 0
        self.doubted, self.unsure = False, None
        self.misses_ahead.clear()
        if context is not None:
            with contextlib.suppress(PlaywrightError):  # the browser has ended
                await context.close()

    async def is_lost(self) -> bool:
        """Return True if the browser has ended, or its driver, and the session's pages with it."""
        try:
            if self.context is not None:
                await self.context.cookies()
        except PlaywrightError:
            return True
        return False

    def new_faults(self) -> list[str]:
        """Return the verdicts of answers that faults changed since the last call; the browser sees none of a reset."""
        fresh = self.gateway.faults_met(self.name)[self.reported_faults :]
        self.reported_faults += len(fresh)
        return fresh

    def new_misses(self) -> list[MissedRequest]:
        """Return the misses since the last call, sorted by URL, because the order of a page's requests varies."""
        assert self.traffic is not None
        found: dict[str, MissedRequest] = {}
        all_of_them = self.gateway.missed(self.name)
        fresh = Counter(one_name(one.url) for one in all_of_them[self.misses_reported :])
        for answer in self.traffic.answers[self.answers_reported :]:
            if answer.verdict != "miss":
                continue
            name = one_name(answer.url)
            if not fresh[name] and self.misses_ahead[name]:  # the previous call reported it
                self.misses_ahead[name] -= 1
                continue
            fresh[name] -= fresh[name] > 0
            found[answer.url] = MissedRequest(answer.url, answer.kind, answer.kind not in NEVER_MISSED)
        self.misses_ahead.update(fresh)
        for one in unseen_by_browser(found, all_of_them[self.misses_reported :]):
            found.setdefault(one.url, one)
        small = {masked_url(one.url) for one in all_of_them if not one.matters}
        self.answers_reported, self.misses_reported = len(self.traffic.answers), len(all_of_them)
        return [
            one._replace(matters=one.matters and masked_url(url) not in small)
            for url, one in sorted(found.items())
        ]

    def modal(self) -> list[str]:
        """Return the lines of the "Modal state" section: the dialog or file chooser that blocks the current tab."""
        if not self.tabs:
            return []
        lines = [fill_string("chooser")] if self.tab.chooser is not None else []
        if self.tab.dialog is not None:
            lines.append(
                fill_string("dialog", type=self.tab.dialog.type, message=bounded(self.tab.dialog.message))
            )
        return lines

    # ---- for the actions

    @property
    def tab(self) -> Tab:
        return self.tabs[self.current]

    @property
    def page(self) -> Page:
        return self.tab.page

    async def _tab_ready(self) -> None:
        if self.context is None:
            self.context = await self.shared.spares.take(self.name, self.gateway, self.profile)
            self.context.set_default_timeout(ACTION_MS)
            self.traffic = Traffic(self.context)
            self.context.on("response", self._answered)
            self.context.on("page", self._opened)
            for page in self.context.pages:
                self._opened(page)
            self.current = 0
        if not self.tabs:
            assert self.traffic is not None
            await self.traffic.new_page()
            self.current = 0

    def _answered(self, response: Response) -> None:
        self.doubted = self.doubted or "stillweb-ambiguous" in response.headers
        self.unsure = combine(self.unsure, Confidence.parse(response.headers.get("stillweb-confidence")))

    def _opened(self, page: Page) -> None:
        tab = Tab(page)
        self.tabs.append(tab)
        page.on("close", lambda _: self._gone(tab))
        page.on("download", self._keeps)

    async def _keeps(self, download: Download) -> None:
        self.downloads.append(download.suggested_filename)
        self._has_downloads.set()
        # nobody reads the file, and a page may start downloads without an end
        with contextlib.suppress(PlaywrightError):  # the page has gone
            await download.delete()

    async def _file_kept(self) -> None:
        """Wait up to 10 seconds until the browser reports a download."""
        with contextlib.suppress(TimeoutError):  # the page may have navigated away meanwhile
            await asyncio.wait_for(self._has_downloads.wait(), 10)

    def take_downloads(self) -> Newest[str]:
        """Return the names of the files downloaded since the last call, in order, and forget them."""
        names, self.downloads = self.downloads, Newest(MOST_DOWNLOADS, len)
        self._has_downloads.clear()
        return names

    def take_left_out(self) -> int:
        """Return the number of requests since the last call that no result can take into account."""
        assert self.traffic is not None
        left_out, self.left_out = self.traffic.answers.left_out - self.left_out, self.traffic.answers.left_out
        return left_out

    def take_crowded(self) -> bool:
        """Return True if windows were left out since the last call, and forget it."""
        assert self.traffic is not None
        crowded, self.traffic.crowded = self.traffic.crowded, False
        return crowded

    def _gone(self, tab: Tab) -> None:
        if tab in self.tabs:
            index = self.tabs.index(tab)
            self.tabs.remove(tab)
            if index < self.current or self.current >= len(self.tabs):
                self.current = max(0, self.current - 1)

    async def new_tab(self) -> None:
        """Open a tab and make it the current one."""
        assert self.traffic is not None
        await self.traffic.new_page()
        self.current = len(self.tabs) - 1

    async def until_dialog(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work`; return None without waiting for its end if a dialog blocks the page."""
        task = asyncio.ensure_future(work)
        held = asyncio.ensure_future(self.tab.dialog_opened.wait())
        try:
            await asyncio.wait({task, held}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            return None
        finally:
            held.cancel()
            if not task.done():  # a dialog blocks it, or the call was cancelled
                task.add_done_callback(_forget)

    async def wait_until_quiet(self) -> None:
        """Wait until the current page is quiet, or a dialog blocks it."""
        assert self.traffic is not None
        if self.tab.dialog is None:
            await self.until_dialog(settle(self.page, self.traffic, self.patience))
        if self.tabs and self.tab.came_as_file():
            await self._file_kept()

    async def locate(self, target: str, element: str | None = None) -> tuple[Locator, str]:
        """Return the element of a reference or selector, and its JavaScript. Raise Problem if none matches."""
        if re.fullmatch(r"(f\d+)?e\d+", target):
            locator = self.page.locator(f"aria-ref={target}")
            try:
                normal = await locator.normalize()
            except PlaywrightError:
                raise Problem(fill_string("stale", target=target)) from None
            return locator, code_of(str(normal._impl_obj._selector))
        try:
            locator = self.page.locator(target)
            if not await locator.count():
                raise Problem(fill_string("no_match", target=target))
        except PlaywrightError:
            raise Problem(fill_string("no_match", target=target)) from None
        return locator.first, code_of(target)

    async def leave_forbidden(self) -> None:
        """Replace the first tab with a forbidden scheme by about:blank, and raise Problem."""
        for tab in self.tabs:
            url = tab.url
            if url != NO_PAGE and (scheme := forbidden_scheme(url)):
                await tab.page.goto("about:blank")
                raise Problem(fill_string("protocol", scheme=scheme, url=url))

    async def navigate(self, url: str) -> str | None:
        """Load a URL or a view. Return a view's address, None for a page. Raise Problem if the snapshot lacks it."""
        assert self.traffic is not None
        assert self.context is not None
        if scheme := forbidden_scheme(url):
            raise Problem(fill_string("protocol", scheme=scheme, url=url))
        view = None
        if self.snapshot is not None and id_in(url) is not None:
            view = self.snapshot.view(url)
            if view is None:  # the page without the steps would be another view
                raise Problem(fill_string("network", reason=OFFLINE, url=url), miss=url)
        files = contents_of(self.snapshot, view) if self.snapshot is not None and view is not None else {}
        driver = Driver(
            self.context, patience=self.patience, traffic=self.traffic, page=self.page, files=files
        )
        try:
            if view is not None:
                if "#" in view.url:  # navigation to a fragment of the current page would not reload it
                    await self.page.goto("about:blank")
                await self.until_dialog(driver.open_start(view.url))
                for number, step in enumerate(view.steps, start=1):
                    await self.until_dialog(driver.perform(step, number))
                return view.address
            await self.until_dialog(driver.open(url))
        except PageFailed as error:
            text = str(error)
            if "Download is starting" in text:  # no failure in the real server either: the page stays
                await self._file_kept()
                self.tab.came_as_file()
                return None
            verdict = verdict_in(text, url, self.snapshot)
            if verdict:  # hide the gateway's error text
                with contextlib.suppress(PlaywrightError):
                    await self.page.set_content("")
            reason = of_verdict(verdict) or text.rpartition("net::")[2]
            reason = (
                reason
                if reason.startswith("net::")
                else f"net::{reason.split()[0]}"
                if "net::" in text
                else text
            )
            raise Problem(fill_string("network", reason=reason, url=url), verdict=verdict) from None
        return None


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # mark it as read: the page shows the dialog's outcome


OFFLINE = "net::ERR_INTERNET_DISCONNECTED"  # the error of a miss
_OF_REASONS = {
    "private": "net::ERR_ADDRESS_UNREACHABLE",
    "dns": "net::ERR_NAME_NOT_RESOLVED",
    "refused": "net::ERR_CONNECTION_REFUSED",
    "unreachable": "net::ERR_ADDRESS_UNREACHABLE",
    "timeout": "net::ERR_CONNECTION_TIMED_OUT",
    "tls": "net::ERR_SSL_PROTOCOL_ERROR",
    "reset": "net::ERR_CONNECTION_RESET",
    "incomplete": "net::ERR_CONNECTION_CLOSED",
    "protocol": "net::ERR_INVALID_HTTP_RESPONSE",
}
_VERDICT = re.compile(r"\((miss|failed:[a-z]+)\)")


def of_verdict(verdict: str) -> str:
    """Return the network error of a document with this verdict; "" if it was answered."""
    kind, _, reason = verdict.partition(":")
    if kind == "failed":
        return _OF_REASONS.get(reason, "net::ERR_FAILED")
    return OFFLINE if kind == "miss" else ""


def verdict_in(text: str, url: str, snapshot: Snapshot | None) -> str:
    """Return the verdict on an address from the error of opening it; "" if the gateway did not cause the error."""
    if found := _VERDICT.search(text):
        return found[1]
    # the gateway may have refused the tunnel because it failed while recording
    if "ERR_TUNNEL_CONNECTION_FAILED" in text and snapshot is not None:
        failed = snapshot.matcher().failing.tunnel(url)
        return failed.failure.verdict if failed is not None else ""
    return ""


MOST_MISSES = 25  # misses named in one result


class Reply:
    """Answer under construction: sections, images and files."""

    def __init__(self, session: Browsing) -> None:
        self.session = session
        self.sections = Sections()
        self.images: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []  # files given to the page: name and digest
        self.address: str | None = None
        self.with_snapshot = False
        self.explicit: tuple[Locator | None, int | None, bool | None] | None = None
        self.closed = False

    def code(self, line: str) -> None:
        """Add a line to the "Ran Playwright code" section."""
        self.sections.code.append(line)

    def result(self, text: str) -> None:
        """Add a text to the "Result" section."""
        self.sections.results.append(text)

    def error(self, text: str) -> None:
        """Add a text to the "Error" section."""
        self.sections.errors.append(text)

    async def finish(self) -> None:
        """Add the sections about the tabs, the page and its snapshot."""
        session = self.session
        if self.closed or not session.tabs:
            return
        downloads = session.take_downloads()
        self.sections.events += [fill_string("downloading", name=name) for name in downloads]
        if downloads.left_out:
            self.sections.events.append(f"- Left out: {downloads.left_out} older downloads")
        if left_out := session.take_left_out():
            self.sections.events.append(f"- Left out: {left_out} requests of the page, which sends too many")
        if session.take_crowded():
            self.sections.events.append("- Left out: windows that the page opened, as too many are open")
        headers = [(tab, await tab.lines()) for tab in session.tabs]
        changed = [tab for tab, lines in headers if tab.header != lines]
        if self.with_snapshot or self.explicit or changed:
            if len(headers) != 1:
                self.sections.tabs = await tab_lines(session)
            self.sections.page = next(lines for tab, lines in headers if tab is session.tab)
        for tab, lines in headers:
            tab.header = lines
        self.sections.modal = session.modal()
        if (self.with_snapshot or self.explicit) and not session.tab.is_held:
            root, depth, boxes = self.explicit or (None, None, None)
            where = root or await accessible_root(session.page)
            self.sections.snapshot = (
                ""
                if where is None
                else await where.aria_snapshot(mode="ai", depth=depth, boxes=boxes, timeout=GIVEN_MS)
            )

    def add_misses(self, missed: Iterable[MissedRequest]) -> None:
        """List the requests of the page that were missed and matter, so that the page is not taken for complete."""
        said_already = "\n".join(self.sections.errors)
        lines = [
            f"- Failed to load: {one.url} ({one.kind})"
            for one in missed
            if one.matters and one.url not in said_already
        ]
        if len(lines) > MOST_MISSES:
            lines[MOST_MISSES:] = [f"- Failed to load: {len(lines) - MOST_MISSES} more"]
        self.sections.events += lines


async def tab_lines(session: Browsing) -> list[str]:
    """Return the lines of the "Open tabs" section."""
    if not session.tabs:
        return [fill_string("no_tabs")]
    lines = []
    for index, tab in enumerate(session.tabs):
        tab.header = await tab.lines()
        current = " (current)" if index == session.current else ""
        lines.append(f"- {index}:{current} [{await tab.title()}]({tab.url})")
    return lines
