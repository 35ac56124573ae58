"""A browser that tells late of new pages, or never."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page

Told = Callable[[Page], None]


def hearing(monkeypatch: pytest.MonkeyPatch, hear: Callable[[Told, Page], None]) -> None:
    """Have listeners for new pages told by `hear`."""
    listen = BrowserContext.on

    def on(context: BrowserContext, event: Any, told: Any) -> None:
        listen(context, event, (lambda page: hear(told, page)) if event == "page" else told)

    monkeypatch.setattr(BrowserContext, "on", on)


def tell_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every page but a context's first it is told a second late."""

    def hear(told: Told, page: Page) -> None:
        if len(page.context.pages) > 1:
            asyncio.get_running_loop().call_later(1.0, told, page)
        else:
            told(page)

    hearing(monkeypatch, hear)
