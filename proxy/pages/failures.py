"""Why a page could not be loaded, or a step not be done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from playwright.async_api import Error as PlaywrightError


class Failed(StillwebError):
    """A page that could not be loaded, or a step that could not be done. The message is one line."""

    exit_code = 1


class Unclear(Failed):
    """A step that names no element, or several. Nothing was done."""


class Unusable(Failed):
    """An element that could not be used in all the time that it had; something may have been done."""


def first_line(error: PlaywrightError) -> str:
    """The part of Playwright's message that says what is wrong."""
    line = next((part for part in error.message.splitlines() if part.strip()), "unknown error")
    return re.sub(r"^[A-Z]\w+\.\w+: ", "", line.strip())
