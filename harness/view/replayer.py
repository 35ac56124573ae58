"""Replay of a recorded view in the installed Chromium, through a gateway: scripts and all, with no way out."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.view import View

MOST_ENTRIES = 300  # requests listed


@dataclass(frozen=True, slots=True)
class ReplayedView:
    """A replayed view: its picture as a data URI, its text, the requests with their verdicts, and what went wrong."""

    picture: str = ""
    text: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    window: bool = False  # True if a window stays open on the display


def replay_view(snapshot: Snapshot, view: View) -> ReplayedView:
    """Start a browser on a view's page in a new session, do its steps, and return what it shows.

    With a display the browser has a window, which stays open until it is closed.
    """
    window = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    results: SimpleQueue[ReplayedView] = SimpleQueue()

    def work() -> None:
        try:
            asyncio.run(_replay(snapshot, view, window, results))
        except (StillwebError, OSError) as error:
            results.put(ReplayedView(error=str(error)))

    threading.Thread(target=work, name="stillweb-view-replay", daemon=True).start()
    return results.get()


async def _replay(snapshot: Snapshot, view: View, window: bool, results: SimpleQueue[ReplayedView]) -> None:
    from playwright.async_api import Error

    from stillweb.proxy.browser.browser import BrowserHost, profile_of
    from stillweb.proxy.browser.driver import Driver
    from stillweb.proxy.browser.errors import PageFailed, first_line
    from stillweb.proxy.browser.page_snapshot import read_page
    from stillweb.proxy.browser.settle import SettleTimeouts
    from stillweb.proxy.browser.uploads import contents_of
    from stillweb.proxy.replay.gateway import Gateway

    session = view.session or "view"
    with Gateway(snapshot) as gateway:
        async with BrowserHost(ca=gateway.ca_path, headless=not window) as host:
            profile = profile_of(snapshot)
            context = await host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
            driver = Driver(context, patience=SettleTimeouts(), files=contents_of(snapshot, view))
            error = picture = text = ""
            try:
                await driver.open_start(view.url)
                for number, step in enumerate(view.steps, 1):
                    await driver.perform(step, number)
                content = await read_page(driver.page)
                picture, text = base64.b64encode(content.png).decode(), content.text
            except (PageFailed, Error) as failed:
                error = first_line(failed) if isinstance(failed, Error) else str(failed)
            entries = await asyncio.to_thread(gateway.ledger.entries)
            stays = window and not error
            results.put(
                ReplayedView(
                    f"data:image/png;base64,{picture}" if picture else "",
                    text,
                    list(entries)[:MOST_ENTRIES],
                    error,
                    stays,
                )
            )
            if stays:
                await driver.page.wait_for_event("close", timeout=0)
