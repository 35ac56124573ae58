"""Looking at our own pages in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def chromium(**options: Any) -> Iterator[Any]:
    """A page; its `requested` lists every URL it asked for, its `complaints` what its console said."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser()), args=ARGUMENTS)
        try:
            page = browser.new_page(**options)
            page.requested = []
            page.complaints = []
            page.on("request", lambda request: page.requested.append(request.url))
            page.on("console", lambda message: page.complaints.append(message.text))
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            yield page
        finally:
            browser.close()
