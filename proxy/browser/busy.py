"""Signs of a page that its server is at work: a spinner, "Running…", `aria-busy`.

Read only from pages with open streams, whose messages come at any time. A sign that nothing followed is
ignored until it has been seen to go.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.answered import answered

if TYPE_CHECKING:
    from playwright.async_api import Page


@functools.cache
def _script() -> str:
    return files("stillweb.proxy.browser").joinpath("busy.js").read_text(encoding="utf-8")


class Signs:
    """The busy signs on the pages of one context.

    `vain` holds the signs, of all contexts, that nothing followed.
    """

    def __init__(self, vain: set[str]) -> None:
        self._vain = vain
        self._usual: set[str] | None = None  # what moved when the page last rested; None: it has never rested

    async def of(self, page: Page) -> list[str]:
        """Return the signs that the page is at work, without what has moved since before it last rested."""
        says, moves = await _read(page)
        moving = moves - self._usual if self._usual is not None else set()
        return sorted((says | moving) - self._vain)

    async def rested(self, page: Page, vain: list[str]) -> None:
        """Note that the page was accepted as it is, in spite of the signs `vain`."""
        says, moves = await _read(page)
        self._usual = moves
        here = {one for one in self._vain if one.startswith(_origin(page))}
        self._vain -= here - says - moves
        self._vain |= set(vain)


async def _read(page: Page) -> tuple[set[str], set[str]]:
    where = _origin(page)
    says: set[str] = set()
    moves: set[str] = set()
    for frame in page.frames:
        try:
            found: dict[str, Any] = await answered(frame.evaluate(_script()))
        except PlaywrightError:
            continue  # it goes away, or shows no document
        says |= {f"{where} {one}" for one in found["says"]}
        moves |= {f"{where} {one}" for one in found["moves"]}
    return says, moves


def _origin(page: Page) -> str:
    return "/".join(page.main_frame.url.split("/", 3)[:3])
