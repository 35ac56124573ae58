"""The errors of pages that could not be loaded, and of steps that could not be done; and the wait for a page's answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from playwright.async_api import TimeoutError as PlaywrightTimeout

from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from playwright.async_api import Error as PlaywrightError


class PageFailed(StillwebError):
    """A page that could not be loaded, or a step that could not be done. The message is one line."""

    exit_code = 1


class AmbiguousElement(PageFailed):
    """A step that names no element, or several. Nothing was done."""


class UnusableElement(PageFailed):
    """An element that could not be used within the time allowed. Something may have been done."""


# Lower-case schemes of pages that a snapshot holds or that a script may write itself. All others show this
# machine: its files, or the browser's own pages with their paths and settings.
_SHOWN = frozenset({"http", "https", "data", "blob"})
_EMPTY = re.compile(r"about:(blank|srcdoc)(?![^?#])", re.I)
_SCHEME = re.compile(r"[\x00-\x20]*([a-z][a-z0-9+.\t\n\r-]*):", re.I)


def forbidden_scheme(url: str) -> str:
    """Return the scheme of an address whose page must not be shown, "" for one that may be shown.

    The scheme is read as browsers read it (WHATWG URL, 4.4).
    """
    found = _SCHEME.match(url)
    scheme = re.sub(r"[\t\n\r]", "", found[1]).lower() if found else ""
    return "" if scheme in _SHOWN or _EMPTY.match(url.strip()) else scheme


def first_line(error: PlaywrightError) -> str:
    """Return the part of Playwright's message that says what is wrong."""
    line = next((part for part in error.message.splitlines() if part.strip()), "unknown error")
    return re.sub(r"^[A-Z]\w+\.\w+: ", "", line.strip())


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
