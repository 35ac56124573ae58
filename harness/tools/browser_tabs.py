"""Tab of a browser session: its console, its requests and its dialog, and their texts in results."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playwright.async_api import Error as PlaywrightError

from stillweb.harness.tools.browser_text import fill_string, matching
from stillweb.proxy.browser.newest import Newest
from stillweb.proxy.replay.misses import MARKED

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Dialog, FileChooser, Page, Request, Response

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
