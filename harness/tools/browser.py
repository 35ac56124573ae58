"""Playwright MCP's browser tools on a frozen web: one context for each session, its network the gateway's.

Names, schemas, sections and error forms are the real server's (contracts/playwright-mcp.json). Where it writes the
page's snapshot into a file named by the clock, the snapshot itself is in the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from harness.tools.browser_reply import ACTION_MS, Problem, Reply
from harness.tools.browser_shared import SharedBrowser
from harness.tools.browser_tabs import Tab
from harness.tools.browser_text import Sections, argument_error, code_of, contract, said
from harness.tools.contract import ToolResult
from proxy.acting import Driver, Failed
from proxy.browser import complete
from proxy.freeze import Patience, Traffic, settle
from proxy.sight import state_of
from snapshots.profile import Profile

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Locator, Page

    from harness.tools.toolset import Toolset
    from snapshots.snapshot import Snapshot

CONTRACT = "playwright-mcp@0.0.79"
_ORDER = ("exact", "canonical", "varies", "rendered", "rule", "synthetic", "miss")


class Serves(Protocol):
    """What is needed of a gateway."""

    @property
    def ca_path(self) -> Path:
        """The CA that the browser is to trust."""

    def proxy_url(self, session: str = ...) -> str:
        """The address of a session."""


@dataclass(eq=False)
class BrowserSession:
    """One agent's browser: a context, its tabs, and what it was told last.

    `call` and `close` may be awaited in any event loop; calls of one session are done one after the other.
    """

    shared: SharedBrowser
    gateway: Serves
    snapshot: Snapshot | None
    name: str
    profile: Profile
    patience: Patience = field(default_factory=Patience)
    tabs: list[Tab] = field(default_factory=list)
    current: int = 0
    context: BrowserContext | None = None
    traffic: Traffic | None = None
    _lock: asyncio.Lock | None = None
    _digests: dict[str, str] | None = None

    # ---- from outside

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool. Every failure is an answer with `is_error`; only a missing browser raises."""
        return await self.shared.run(self._call(name, dict(arguments)))

    async def prepare(self) -> None:
        """Open context and page ahead of the first call, which waits for it. Raises what that call would raise."""
        await self.shared.run(self._prepare())

    async def _prepare(self) -> None:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            await self._tab_ready()

    async def close(self) -> None:
        """Drop the context with all that it holds."""
        await self.shared.run(self._close())

    async def _close(self) -> None:
        context, self.context = self.context, None
        self.tabs, self.current = [], 0
        if context is not None:
            await context.close()

    # ---- a call

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        from harness.tools.browser_actions import ACTIONS, HANDLES_DIALOG

        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            schema = next((tool["inputSchema"] for tool in contract()["tools"] if tool["name"] == name), None)
            if schema is None or name not in ACTIONS:
                return self._error(said("unknown_tool", name=name))
            arguments = _renamed(arguments)
            if problem := argument_error(name, arguments, schema):
                return self._error(problem)
            for key, one in schema.get("properties", {}).items():
                if "default" in one:
                    arguments.setdefault(key, one["default"])
            await self._tab_ready()
            assert self.traffic is not None
            since = len(self.traffic.answers)
            reply = Reply(self)
            held = self.tab.dialog is not None
            try:
                if held and name not in HANDLES_DIALOG:
                    raise Problem(said("modal", name=name))
                await ACTIONS[name](self, arguments, reply)
                self._refuse_missed_page(since)
            except Problem as problem_found:
                reply.sections = Sections(errors=[str(problem_found)], modal=self.modal())
                reply.images.clear()
            except PlaywrightTimeout:
                reply.sections = Sections(errors=[said("timeout", ms=ACTION_MS)])
            except PlaywrightError as error:
                reply.sections = Sections(errors=[f"Error: browserBackend.callTool: {_plain(error)}"])
            else:
                await reply.finish(since)
            return await self._answer(reply, since)

    def _error(self, text: str) -> ToolResult:
        sections = Sections(errors=[text])
        return ToolResult([{"type": "text", "text": sections.text()}], True, {"contract": CONTRACT})

    async def _answer(self, reply: Reply, since: int) -> ToolResult:
        assert self.traffic is not None
        answers = self.traffic.answers[since:]
        missed = [one.url for one in answers if one.verdict == "miss"]
        verdicts = [one.verdict.partition(":")[0] for one in answers if one.verdict]
        worst = max(verdicts, key=lambda v: _ORDER.index(v) if v in _ORDER else 0, default=None)
        is_error = bool(reply.sections.errors)
        meta: dict[str, Any] = {
            "contract": CONTRACT,
            "verdict": "miss" if missed and is_error else worst,
            "captures": [place for one in answers if (place := self._place(one.capture))],
            "state": await self._state(),
        }
        if self.tabs and self.tab.url != "about:blank":
            meta["address"] = reply.address or self.tab.url
        if missed:
            meta["missed"] = missed
        return ToolResult([{"type": "text", "text": reply.sections.text()}, *reply.images], is_error, meta)

    def _place(self, header: str) -> dict[str, Any] | None:
        """The evidence behind an answer: where its capture lies, and its payload digest."""
        name, _, offset = header.rpartition(":")
        if not name or not offset.isdigit():
            return None
        place: dict[str, Any] = {"file": name, "offset": int(offset)}
        if self.snapshot is not None:
            if self._digests is None:
                self._digests = {f"{c.filename}:{c.offset}": c.digest for c in self.snapshot.captures()}
            if header in self._digests:
                place["digest"] = self._digests[header]
        return place

    async def _state(self) -> dict[str, Any] | None:
        """The retrieval state: URL, fragment, form values, chosen filters, page number, sort."""
        if not self.tabs or self.tab.dialog is not None or self.tab.page.is_closed():
            return None
        try:
            return await asyncio.wait_for(state_of(self.tab.page), 5)
        except (PlaywrightError, TimeoutError):
            return None

    def _refuse_missed_page(self, since: int) -> None:
        """A document that the snapshot lacks is the tool's own network error, never a page."""
        assert self.traffic is not None
        for one in self.traffic.answers[since:]:
            if one.verdict == "miss" and one.kind == "document" and _same(one.url, self.tab.url):
                raise Problem(said("network", reason="net::ERR_INTERNET_DISCONNECTED", url=one.url))

    def modal(self) -> list[str]:
        if not self.tabs or self.tab.dialog is None:
            return []
        return [said("dialog", type=self.tab.dialog.type, message=self.tab.dialog.message)]

    # ---- for the actions

    @property
    def tab(self) -> Tab:
        """The current tab."""
        return self.tabs[self.current]

    @property
    def page(self) -> Page:
        """The current tab's page."""
        return self.tab.page

    async def _tab_ready(self) -> None:
        if self.context is None:
            proxy_url = self.gateway.proxy_url(self.name)
            self.context = await self.shared.host.context(
                self.name, proxy_url, self.profile, self.gateway.ca_path
            )
            self.context.set_default_timeout(ACTION_MS)
            self.traffic = Traffic(self.context)
            self.context.on("page", self._opened)
        if not self.tabs:
            await self.context.new_page()
            self.current = 0

    def _opened(self, page: Page) -> None:
        tab = Tab(page)
        self.tabs.append(tab)
        page.on("close", lambda _: self._gone(tab))

    def _gone(self, tab: Tab) -> None:
        if tab in self.tabs:
            index = self.tabs.index(tab)
            self.tabs.remove(tab)
            if index < self.current or self.current >= len(self.tabs):
                self.current = max(0, self.current - 1)

    async def new_tab(self) -> None:
        """Open a tab and make it the current one."""
        assert self.context is not None
        await self.context.new_page()
        self.current = len(self.tabs) - 1

    async def until_dialog(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do the work, but don't wait for it once a dialog holds the page."""
        task = asyncio.ensure_future(work)
        held = asyncio.ensure_future(self.tab.held.wait())
        try:
            await asyncio.wait({task, held}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.add_done_callback(_forget)
            return None
        finally:
            held.cancel()

    async def rest(self) -> None:
        """Wait until the current page is quiet, or a dialog holds it."""
        assert self.traffic is not None
        if self.tab.dialog is None:
            await self.until_dialog(settle(self.page, self.traffic, self.patience))

    async def locate(self, target: str, element: str | None = None) -> tuple[Locator, str]:
        """The element of a reference or selector, and how it is written in code. Raises Problem."""
        if re.fullmatch(r"(f\d+)?e\d+", target):
            locator = self.page.locator(f"aria-ref={target}")
            try:
                normal = await locator.normalize()
            except PlaywrightError:
                raise Problem(said("stale", target=target)) from None
            return locator, code_of(str(normal._impl_obj._selector))
        try:
            locator = self.page.locator(target)
            if not await locator.count():
                raise Problem(said("no_match", target=target))
        except PlaywrightError:
            raise Problem(said("no_match", target=target)) from None
        return locator.first, code_of(target)

    async def navigate(self, url: str, reply: Reply) -> None:
        """Load a URL, or a view's address by its steps; refuses what the snapshot lacks."""
        assert self.traffic is not None
        assert self.context is not None
        view = self.snapshot.view(url) if self.snapshot is not None and "#view=" in url else None
        driver = Driver(self.context, patience=self.patience, traffic=self.traffic, page=self.page)
        try:
            if view is not None:
                await self.until_dialog(driver.begin(view.url))
                for number, step in enumerate(view.steps, start=1):
                    await self.until_dialog(driver.perform(step, number))
                reply.address = view.address
            else:
                await self.until_dialog(driver.open(url))
        except Failed as error:
            text = str(error)
            if "(miss)" in text:  # an answer that is no page stays unseen
                with contextlib.suppress(PlaywrightError):
                    await self.page.set_content("")
            reason = "net::ERR_INTERNET_DISCONNECTED" if "(miss)" in text else text.rpartition("net::")[2]
            reason = (
                reason
                if reason.startswith("net::")
                else f"net::{reason.split()[0]}"
                if "net::" in text
                else text
            )
            raise Problem(said("network", reason=reason, url=url)) from None


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # what a dialog interrupted is told by the page, not here


def _plain(error: PlaywrightError) -> str:
    text = error.message
    head, _, rest = text.partition(": ")
    return rest if "." in head and " " not in head else text


def _same(one: str, other: str) -> bool:
    return one.partition("#")[0] == other.partition("#")[0]


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Older names of arguments (`ref`, before April 2026) in today's."""
    names = {"ref": "target", "startRef": "startTarget", "endRef": "endTarget"}
    for old, new in names.items():
        if old in arguments and new not in arguments:
            arguments[new] = arguments.pop(old)
    if isinstance(arguments.get("fields"), list):
        arguments["fields"] = [
            _renamed(dict(one)) if isinstance(one, dict) else one for one in arguments["fields"]
        ]
    return arguments


def profile_of(snapshot: Snapshot | None) -> Profile:
    """The profile that a snapshot's pages are to be seen with."""
    return complete((snapshot.profile if snapshot is not None else None) or Profile())


class BrowserTool:
    """The contract's tools for a toolset. Its options may have a `gateway` and a `browser` (SharedBrowser); what is
    not given is made when first needed, and closed with the tool."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._gateway: Serves | None = toolset.options.get("gateway")
        self._browser: SharedBrowser | None = toolset.options.get("browser")
        self._own = contextlib.ExitStack()
        self._profile: Profile | None = None

    def open(self, session: str) -> BrowserSession:
        """A session's own browser context, opened with its first call."""
        from proxy.gateway import Gateway

        snapshot = self._toolset.snapshot
        if self._gateway is None:
            gateway = Gateway(snapshot, accept=getattr(self._toolset.store, "accept", "rule"))
            self._gateway = self._own.enter_context(gateway)
        if self._browser is None:
            self._browser = SharedBrowser(ca=self._gateway.ca_path)
            self._own.callback(self._browser.close)
        self._profile = self._profile or profile_of(snapshot)
        return BrowserSession(self._browser, self._gateway, snapshot, session, self._profile)

    async def call(self, name: str, arguments: dict[str, Any], visit: object) -> ToolResult:
        """Not used: a session calls what `open` gave it."""
        raise NotImplementedError(name)

    async def close(self) -> None:
        """End what was made here."""
        await asyncio.to_thread(self._own.close)


def make_tool(toolset: Toolset) -> BrowserTool:
    """See toolset.MAKERS."""
    return BrowserTool(toolset)
