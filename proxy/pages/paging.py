"""The link or button that leads to the next page of results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_NEXT = (
    'a[rel~="next"]:visible',
    '[aria-label*="next" i]:is(a,button,[role=button],[role=link]):visible',
)
_NEXT_NAME = re.compile(
    r"^\W*(next( page)?|older( posts)?|weiter|suivant|siguiente|下一页|次へ|›|»|→|>)\W*$", re.I
)


async def next_page_of(page: Page) -> Locator | None:
    """The first that can be used: what says so in its markup, then what is called so."""
    candidates = [page.locator(selector) for selector in _NEXT]
    candidates += [page.get_by_role(role, name=_NEXT_NAME) for role in ("link", "button")]
    for found in candidates:
        for index in range(await found.count()):
            one = found.nth(index)
            if await one.is_visible() and await one.is_enabled():
                return one
    return None
