"""A Chromium that many tests share: an event loop, a browser host, and a plain proxy to go through."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.async_api import BrowserContext

from stillweb.proxy.browser import browser, capture_view, running
from stillweb.proxy.browser.browser import BrowserHost
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.check import check
from stillweb.proxy.explore import explorer
from stillweb.snapshots.profile import Profile
from tests.proxy.sites import Forward, forward
from tests.support.waiting import STARTS

T = TypeVar("T")
browser.build_of = cache(browser.build_of)  # asked some hundred times, by starting it


@dataclass
class Browsing:
    """A running browser; `run` does async work on its loop, `driver` opens a fresh context."""

    runner: asyncio.Runner
    host: BrowserHost
    proxy: Forward
    profile: Profile = field(default_factory=Profile)
    sessions: int = 0
    contexts: list[BrowserContext] = field(default_factory=list)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def driver(self, patience: SettleTimeouts | None = None, profile: Profile | None = None) -> Driver:
        self.sessions += 1
        session = f"s{self.sessions}"
        context = await self.host.context(session, self.proxy.proxy_url(session), profile or self.profile)
        self.contexts.append(context)
        return Driver(context, patience=patience)

    async def look(self, url: str, ready: str, what: str) -> dict[str, Any]:
        """Return what an expression gives on a page once another holds there, in a context of its own."""
        driver = await self.driver()
        await driver.open(url)
        await driver.page.wait_for_function(f"() => {ready}", timeout=STARTS * 1000)
        found: dict[str, Any] = await driver.page.evaluate(f"() => ({what})")
        await driver.context.close()
        return found

    async def clear(self) -> None:
        """Close all pages and contexts, and forget what they asked for."""
        for context in self.contexts:
            await context.close()
        self.contexts.clear()
        self.proxy.seen.clear()


@contextmanager
def browsing(executable: Path | None = None) -> Iterator[Browsing]:
    """A browser that is gone afterwards."""
    with forward() as proxy, asyncio.Runner() as runner:
        host = BrowserHost(executable=executable)
        try:
            yield Browsing(runner, host, proxy)
        finally:
            runner.run(host.close())


class SharedBrowser:
    """The one browser of a worker, in which `fetch`, `explore` and `check` work too: a start costs more than most pages.

    It trusts no CA, so contexts of gateways and recorders accept any certificate. `executable` is the browser to start.
    """

    def __init__(self, executable: Path | None) -> None:
        self._executable = executable
        self._open = ExitStack()
        self._running: Browsing | None = None
        self.patch = pytest.MonkeyPatch()

    @property
    def browsing(self) -> Browsing:
        """The running browser. It is started on first use."""
        if self._running is None:
            self._running = self._open.enter_context(browsing(self._executable))
        return self._running

    def lend(self) -> None:
        """Let the functions without an event loop use it."""
        for module in (capture_view, explorer, check):
            self.patch.setattr(module, "run", self._run)
        for module in (capture_view, check):
            self.patch.setattr(module, "lend_browser", self._lent)

    def _run(self, main: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is not threading.main_thread():
            return running.run(main)
        return self.browsing.run(main)

    @asynccontextmanager
    async def _lent(self, host: BrowserHost | None, *arguments: Any) -> AsyncIterator[BrowserHost]:
        ours = self._running is not None and asyncio.get_running_loop() is self._running.runner.get_loop()
        if host is None and ours and not any(arguments[1:]):
            host = self.browsing.host
        async with browser.lend_browser(host, *arguments) as found:
            yield found

    def close(self) -> None:
        """End the browser, and lend it no more."""
        self.patch.undo()
        self._open.close()
