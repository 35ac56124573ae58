"""Evaluation of JavaScript in a page with a timeout: Playwright waits for ever if a script never ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from playwright.async_api import TimeoutError as PlaywrightTimeout

SECONDS = 60.0  # a page that is silent for so long is stuck, never only slow

T = TypeVar("T")


async def answered(asked: Awaitable[T]) -> T:
    """Return the page's answer.

    Raises Playwright's Error if the page is gone, and its TimeoutError if a script holds the page up for
    `SECONDS`.
    """
    try:
        return await asyncio.wait_for(asked, SECONDS)
    except TimeoutError as error:
        raise PlaywrightTimeout(
            f"the page did not answer within {SECONDS:g} s: one of its scripts is blocking it"
        ) from error
