"""Looking at our own pages in Chromium."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from playwright.sync_api import sync_playwright

from stillweb.proxy.browser.browser import find_browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@cache
def _browser(executable: str) -> tuple[Any, Any]:
    """Start a browser for all tests of this process. Return it, and the event loop of its calls."""
    starting = sync_playwright()
    browser = starting.__enter__().chromium.launch(executable_path=executable, args=ARGUMENTS)
    loop = asyncio.get_running_loop()

    def end() -> None:
        asyncio._set_running_loop(loop)
        starting.__exit__()

    atexit.register(end)
    return browser, loop


@contextmanager
def chromium(**options: Any) -> Iterator[Any]:
    """A page in a context of its own; its `requested` lists every URL it asked for, its `complaints` what its console said."""
    browser, loop = _browser(str(find_browser()))
    asyncio._set_running_loop(loop)  # which Playwright's calls expect, and which forbids others between them
    try:
        with browser.new_context(**options) as context:
            page = context.new_page()
            page.requested = []
            page.complaints = []
            page.on("request", lambda request: page.requested.append(request.url))
            page.on("console", lambda message: page.complaints.append(message.text))
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            yield page
    finally:
        asyncio._set_running_loop(None)
