"""What a page says of itself while its server is at work: a turning wheel, "Running…", `aria-busy`.

Asked only of pages with open streams, whose answers come when they like. A sign that nothing followed is not believed
until it has been seen to go.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.pages.answered import answered

if TYPE_CHECKING:
    from playwright.async_api import Page


@functools.cache
def _script() -> str:
    return files("stillweb.proxy.pages").joinpath("busy.js").read_text(encoding="utf-8")


class Signs:
    """The signs on the pages of one context. `vain` are those of all contexts that nothing followed."""

    def __init__(self, vain: set[str]) -> None:
        self._vain = vain
        self._usual: set[str] | None = None  # what moved when the page last rested; None: it has never rested

    async def of(self, page: Page) -> list[str]:
        """What says now that the page is at work, but for what has turned since before it last rested."""
        says, moves = await _read(page)
        moving = moves - self._usual if self._usual is not None else set()
        return sorted((says | moving) - self._vain)

    async def rested(self, page: Page, vain: list[str]) -> None:
        """The page is taken as it is, though it had these signs."""
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
            continue  # it goes, or shows what has no document
        says |= {f"{where} {one}" for one in found["says"]}
        moves |= {f"{where} {one}" for one in found["moves"]}
    return says, moves


def _origin(page: Page) -> str:
    return "/".join(page.main_frame.url.split("/", 3)[:3])
