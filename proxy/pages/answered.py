"""What a page is asked and says: a script of its own that never ends keeps it from answering, and Playwright would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from playwright.async_api import TimeoutError as PlaywrightTimeout

SECONDS = 60.0  # a page that says nothing for so long is stuck: never one that is only slow

T = TypeVar("T")


async def answered(asked: Awaitable[T]) -> T:
    """What the page says. Raises Playwright's Error when it is gone, or held by a script for `SECONDS`."""
    try:
        return await asyncio.wait_for(asked, SECONDS)
    except TimeoutError as error:
        raise PlaywrightTimeout(
            f"the page did not answer within {SECONDS:g} s: a script of it holds it up"
        ) from error
