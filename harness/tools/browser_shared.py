"""Browser shared by all sessions of a process, usable from any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stillweb.proxy.browser.browser import BrowserHost, ContextPool
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")
_COPY = """(text) => {
  addEventListener("copy", (e) => { e.clipboardData.setData("text/plain", text); e.preventDefault(); }, { once: true });
  return document.execCommand("copy");
}"""


class Clipboard:
    """Clipboard of the browser, lent to one session at a time so that no session reads another's text."""

    def __init__(self, host: BrowserHost) -> None:
        self._host = host
        self._page: Page | None = None
        self._lock = asyncio.Lock()

    async def during(self, work: Coroutine[Any, Any, Any], text: str) -> str:
        """Run `work` with `text` on the clipboard; return the clipboard's text afterwards, and empty it."""
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
    """BrowserHost on its own thread and event loop, started when first needed."""

    def __init__(self, *, ca: Path | None = None) -> None:
        self.host = BrowserHost(ca=ca)
        self.spares = ContextPool(self.host)
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
        """Run `work` on the browser's event loop; may be awaited in any loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))

    def close(self) -> None:
        """Close the browser and end its thread."""
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
