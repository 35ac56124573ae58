"""A Chromium that many tests share: an event loop, a browser host, and a plain proxy to go through."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from playwright.async_api import BrowserContext

from stillweb.proxy.browser.browser import BrowserHost
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.settle import Patience
from stillweb.snapshots.profile import Profile
from tests.proxy.sites import Forward, forward

T = TypeVar("T")


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

    async def driver(self, patience: Patience | None = None, profile: Profile | None = None) -> Driver:
        self.sessions += 1
        session = f"s{self.sessions}"
        context = await self.host.context(session, self.proxy.proxy_url(session), profile or self.profile)
        self.contexts.append(context)
        return Driver(context, patience=patience)

    async def clear(self) -> None:
        """Close all pages and contexts, and forget what they asked for."""
        for context in self.contexts:
            await context.close()
        self.contexts.clear()
        self.proxy.seen.clear()


@contextmanager
def browsing() -> Iterator[Browsing]:
    """A browser that is gone afterwards."""
    with forward() as proxy, asyncio.Runner() as runner:
        host = BrowserHost()
        try:
            yield Browsing(runner, host, proxy)
        finally:
            runner.run(host.close())
