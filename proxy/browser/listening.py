"""Silence of streams while recording: whether a page at rest still gets messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.answered import answered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from playwright.async_api import Page

    from stillweb.proxy.browser.patience import Patience
    from stillweb.proxy.browser.traffic import Traffic

LISTENINGS = 6  # times that streams are listened to for silence, at most
BARE = 50  # characters of text up to which a page with streams may still wait for its content
_TEXT = """() => {
  const roots = [document];
  for (const root of roots) for (const e of root.querySelectorAll("*")) if (e.shadowRoot) roots.push(e.shadowRoot);
  if (roots.some((root) => root.querySelector("iframe,frame,canvas,video,object,embed"))) return null;
  const parts = roots.flatMap((root) => root === document ? [document.body] : [...root.children]);
  return parts.reduce((sum, e) => sum + (e && e.checkVisibility() ? e.innerText || "" : "").trim().length, 0);
}"""


class Listening:
    """The streams of a page during one settling, which ends at the loop's time `deadline`."""

    def __init__(self, page: Page, traffic: Traffic, patience: Patience, deadline: float) -> None:
        self._page = page
        self._traffic = traffic
        self._patience = patience
        self._deadline = deadline
        self._signs = traffic.signs(patience.vain)
        self._count = 0
        self._until = 0.0  # when a page that is nearly empty, or has asked in vain, is accepted as it is
        self.busy: list[str] = []  # signs that the page is at work, though nothing came of it

    async def bring(self, state: Mapping[str, Any], ask: Callable[[], Awaitable[Any]]) -> bool:
        """Return True if the streams send something to a page in that `state`.

        How long they are listened to depends on what the page shows.
        """
        if self._count >= LISTENINGS:
            return False
        self._count += 1
        silence, loop = self._traffic.silence, asyncio.get_running_loop()
        if not await silence.kept(state, ask):
            return True
        # its content comes by the stream, from a server that is still at work
        if state["silent"] or await _bare(self._page):
            self._until = self._until or loop.time() + self._patience.stuck
            if await silence.broken(state, ask, min(self._until, self._deadline)):
                return True
        self.busy = await self._signs.of(self._page)
        if self.busy and await silence.broken(
            state, ask, min(loop.time() + self._patience.busy, self._deadline)
        ):
            self._count = 0  # as often as the server has news of its work
            return True
        return False

    async def over(self) -> str:
        """Note that the page is accepted as it is. Return its sign of being at work, "" without one."""
        await self._signs.rested(self._page, self.busy)
        return f"says that it is still at work: {self.busy[0].partition(' ')[2]}" if self.busy else ""


async def _bare(page: Page) -> bool:
    """Return True if a page shows no more than the names of a few buttons."""
    try:
        length = await answered(page.evaluate(_TEXT))
    except PlaywrightError:
        return False  # it goes away
    return length is not None and length < BARE
