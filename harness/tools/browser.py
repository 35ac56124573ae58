"""Playwright MCP's browser tools on a snapshot: one browser context for each session, connected to the gateway.

Names, schemas, sections and error texts are the real server's (contracts/playwright-mcp.json). The real server
writes the page's snapshot into a file named by the clock; here the snapshot itself is in the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from stillweb.harness.tools.browser_actions import ACTIONS, CLEARS, NOT_HELD
from stillweb.harness.tools.browser_files import OUTPUT, outside_roots_error
from stillweb.harness.tools.browser_reply import Reply
from stillweb.harness.tools.browser_session import ACTION_MS, Browsing, Problem, of_verdict
from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.browser_text import Sections, argument_error, contract, fill_string
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.store import weaker_verdict
from stillweb.harness.tools.workspace import OutsideWorkspace
from stillweb.proxy.browser.browser import profile_of
from stillweb.proxy.browser.page_snapshot import PageSnapshot, read_page, state_of
from stillweb.proxy.browser.settle import BrowserResponse
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from stillweb.harness.tools.toolset import Toolset
    from stillweb.proxy.replay.gateway import Gateway

CONTRACT = "playwright-mcp@0.0.79"


@dataclass(eq=False)
class BrowserSession(Browsing):
    """Browser of one agent, with its tools.

    `call` and `close` may be awaited in any event loop. The calls of a session run one after the other.
    """

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool. Every failure is a result with `is_error`; only a missing browser and one that has ended raise."""
        return await self.shared.run(self._call(name, dict(arguments)))

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if not await self.is_lost():
            try:
                result = await self._answered_call(name, arguments)
            except PlaywrightError:
                if not await self.is_lost():
                    raise
            else:
                if not (result.is_error and await self.is_lost()):
                    return result
        raise StillwebError(
            "the browser has ended, and the pages of all attempts with it. Make the attempts again: --retry-failed"
        )

    async def _answered_call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            schema = next((tool["inputSchema"] for tool in contract()["tools"] if tool["name"] == name), None)
            if schema is None or name not in ACTIONS:
                return ToolResult([{"type": "text", "text": fill_string("unknown_tool", name=name)}], True)
            arguments = _renamed(arguments)
            if problem := argument_error(name, arguments, schema):
                return self._error(problem)
            for key, one in schema.get("properties", {}).items():
                if "default" in one:
                    arguments.setdefault(key, one["default"])
            await self._tab_ready()
            assert self.traffic is not None
            since = self.answers_reported
            reply, lacks, failed = Reply(self), None, None
            try:
                self._refuse_outside(arguments.get("filename"))
                self._refuse_held(name)
                await ACTIONS[name](self, arguments, reply)
                self._refuse_missed_page(since)
                await self.leave_forbidden()
            except Problem as problem_found:
                reply.sections = Sections(
                    errors=[str(problem_found)], modal=[] if problem_found.bare else self.modal()
                )
                reply.images.clear()
                lacks, failed = problem_found.miss, problem_found.failed
                reply.address = lacks
            except PlaywrightTimeout:
                reply.sections = Sections(errors=[fill_string("timeout", ms=ACTION_MS)])
            except PlaywrightError as error:
                reply.sections = Sections(errors=[f"Error: browserBackend.callTool: {_plain(error)}"])
            else:
                await reply.finish()
            missed = self.new_misses()
            reply.add_misses(missed)
            return await self._answer(reply, since, [one.url for one in missed], lacks, failed)

    async def look(self) -> PageSnapshot | None:
        """Return what the current tab shows; None without a page, or while a dialog covers it."""
        return await self.shared.run(self._look())

    async def _look(self) -> PageSnapshot | None:
        if not self.tabs or self.tab.dialog is not None or self.tab.page.is_closed():
            return None
        return await read_page(self.tab.page)

    def _error(self, text: str) -> ToolResult:
        sections = Sections(errors=[text])
        return ToolResult([{"type": "text", "text": sections.text()}], True, {"contract": CONTRACT})

    async def _answer(
        self, reply: Reply, since: int, missed: list[str], lacks: str | None, failed: str | None
    ) -> ToolResult:
        assert self.traffic is not None
        answers = self.traffic.answers[since:]
        verdicts = [_told(one.verdict) for one in answers if one.verdict] + self.new_faults()
        worst = functools.reduce(weaker_verdict, sorted(verdicts)) if verdicts else None
        is_error = bool(reply.sections.errors)
        meta: dict[str, Any] = {
            "contract": CONTRACT,
            "verdict": failed or ("miss" if lacks or (missed and is_error) else worst),
            "captures": [place for one in answers if (place := self._place(one))],
            "state": await self._state(),
        }
        if reply.address or (self.tabs and self.tab.url != "about:blank"):
            meta["address"] = reply.address or self.tab.url
        if self.doubted:
            meta["ambiguous"] = True
            self.doubted = False
        if self.unsure is not None:
            meta |= self.unsure.members()
            self.unsure = None
        if missed:
            meta["missed"] = missed
        if reply.files:
            meta["uploads"] = reply.files
        return ToolResult([{"type": "text", "text": reply.sections.text()}, *reply.images], is_error, meta)

    def _place(self, answer: BrowserResponse) -> dict[str, Any] | None:
        """Return the file, offset and payload digest of the capture that an answer names, or None."""
        name, _, offset = answer.capture.rpartition(":")
        if not name or not offset.isdigit():
            return None
        place: dict[str, Any] = {"file": name, "offset": int(offset)}
        if self.snapshot is not None:
            capture = self.snapshot.capture_at((name, int(offset)), answer.url)
            if capture is not None:
                place["digest"] = capture.digest
        return place

    async def _state(self) -> dict[str, Any] | None:
        """Return the retrieval state: URL, fragment, form values, chosen filters, page number, sort."""
        if not self.tabs or self.tab.dialog is not None or self.tab.page.is_closed():
            return None
        try:
            return await asyncio.wait_for(state_of(self.tab.page), 60)
        except (PlaywrightError, TimeoutError):
            return None

    def _refuse_held(self, name: str) -> None:
        """Raise Problem if a dialog or file chooser must be answered before this tool may run."""
        if name in CLEARS:
            if getattr(self.tab, CLEARS[name]) is None:
                raise Problem(fill_string("no_modal", name=name))
            return
        # a dialog stops navigation, a file chooser does not
        held = self.tab.dialog is not None and name not in NOT_HELD - {"browser_navigate"}
        if held or (self.tab.chooser is not None and name not in NOT_HELD):
            raise Problem(fill_string("modal", name=name))

    def _refuse_outside(self, filename: str | None) -> None:
        """Raise Problem if a `filename` leads out of the workspace. No file is written in any case."""
        try:
            self.workspace.resolve(filename or "", OUTPUT)
        except OutsideWorkspace as outside:
            raise outside_roots_error(outside) from None

    def _refuse_missed_page(self, since: int) -> None:
        """Raise Problem (a network error) if the tab's document was missed or failed while recording."""
        assert self.traffic is not None
        for one in self.traffic.answers[since:]:
            reason = (
                of_verdict(one.verdict) if one.kind == "document" and _same(one.url, self.tab.url) else ""
            )
            if reason:
                raise Problem(fill_string("network", reason=reason, url=one.url), verdict=one.verdict)


def _plain(error: PlaywrightError) -> str:
    text = error.message
    head, _, rest = text.partition(": ")
    return rest if "." in head and " " not in head else text


def _same(one: str, other: str) -> bool:
    return one.partition("#")[0] == other.partition("#")[0]


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Rename arguments from before April 2026 (`ref`) to today's names."""
    names = {"ref": "target", "startRef": "startTarget", "endRef": "endTarget"}
    for old, new in names.items():
        if old in arguments and new not in arguments:
            arguments[new] = arguments.pop(old)
    if isinstance(arguments.get("fields"), list):
        arguments["fields"] = [
            _renamed(dict(one)) if isinstance(one, dict) else one for one in arguments["fields"]
        ]
    return arguments


def _told(verdict: str) -> str:
    """Return a request's verdict as a call's: its kind, with the name of what was changed on purpose."""
    kind = verdict.partition(":")[0]
    return verdict if kind in ("fault", "mutated") else kind


class BrowserTool:
    """Tools of the contract for one toolset.

    The toolset's options may have a `gateway` and a `browser` (SharedBrowser). A missing one is started when first
    needed and closed with the tool.
    """

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._gateway: Gateway | None = toolset.options.get("gateway")
        self._browser: SharedBrowser | None = toolset.options.get("browser")
        self._own = contextlib.ExitStack()
        self._profile: Profile | None = None

    def open(self, session: str) -> BrowserSession:
        """Return the browser of a session; its context opens with the first call."""
        from stillweb.harness.tools.service_hosts import http_hosts
        from stillweb.proxy.replay.gateway import Gateway

        snapshot = self._toolset.snapshot
        if self._gateway is None:
            accept = getattr(self._toolset.store, "accept", "rule")
            hosts = http_hosts(self._toolset)
            faults = self._toolset.store.faults
            gateway = Gateway(
                snapshot,
                accept=accept,
                min_confidence=self._toolset.store.min_confidence,
                virtual_hosts=hosts,
                own_pages=False,
                faults=faults,
                timing=self._toolset.store.timing,
            )
            self._gateway = self._own.enter_context(gateway)
        if self._browser is None:
            self._browser = SharedBrowser(ca=self._gateway.ca_path)
            self._own.callback(self._browser.close)
        self._profile = self._profile or profile_of(snapshot)
        return BrowserSession(self._browser, self._gateway, snapshot, session, self._profile)

    async def call(self, name: str, arguments: dict[str, Any], visit: object) -> ToolResult:
        """Raise NotImplementedError: calls go to the BrowserSession that `open` returned."""
        raise NotImplementedError(name)

    async def close(self) -> None:
        """Close the gateway and the browser that this tool started."""
        await asyncio.to_thread(self._own.close)


def make_tool(toolset: Toolset) -> BrowserTool:
    """Return the tool; named in `toolset.MAKERS`."""
    return BrowserTool(toolset)
