"""One browser for all sessions of a process, whatever event loop they live in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stillweb.proxy.pages.browser import BrowserHost
from stillweb.proxy.pages.spares import Spares
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")
_COPY = """(text) => {
  addEventListener("copy", (e) => { e.clipboardData.setData("text/plain", text); e.preventDefault(); }, { once: true });
  return document.execCommand("copy");
}"""


class Clipboard:
    """The one clipboard of a browser, lent to one session at a time, so that none finds what another left there."""

    def __init__(self, host: BrowserHost) -> None:
        self._host = host
        self._page: Page | None = None
        self._lock = asyncio.Lock()

    async def during(self, work: Coroutine[Any, Any, Any], text: str) -> str:
        """Do the work with `text` on the clipboard; return what is on it then, and empty it."""
        async with self._lock:
            if self._page is None or self._page.is_closed():
                context = await self._host.context("clipboard", "http://127.0.0.1:9", Profile())
                self._page = await context.new_page()
                await self._page.set_content("<textarea>")
            page = self._page
            await page.evaluate(_COPY, text)
            try:
                await work
                field = page.locator("textarea")
                await field.fill("")
                await field.press("Control+V")
                return await field.input_value()
            finally:
                await page.evaluate(_COPY, "")


class SharedBrowser:
    """A BrowserHost on a thread and event loop of its own, usable from any other; started when first needed."""

    def __init__(self, *, ca: Path | None = None, host: BrowserHost | None = None) -> None:
        self.host = host or BrowserHost(ca=ca)
        self.spares = Spares(self.host)
        self.clipboard = Clipboard(self.host)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="stillweb-browser", daemon=True
                )
                self._thread.start()
            return self._loop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the browser's loop, from any loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))

    def close(self) -> None:
        """End the browser and its thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result(timeout=120)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=120)
        loop.close()

    async def _end(self) -> None:
        await self.spares.close()
        await self.host.close()
