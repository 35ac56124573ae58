"""The link or button that leads to the next page of results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator, Page

_NEXT = (
    'a[rel~="next"]:visible',
    '[aria-label*="next" i]:is(a,button,[role=button],[role=link]):visible',
)
_NEXT_NAME = re.compile(
    r"^\W*(next( page)?|older( posts)?|weiter|suivant|siguiente|下一页|次へ|›|»|→|>)\W*$", re.I
)
# For a pager that has only numbers: the link with the number after that of the page shown.
_NUMBERED = """() => {
  const link = (e) => e.closest("a[href],button,[role=button],[role=link]");
  for (const pager of document.querySelectorAll("[class*=paginat i],[class*=pager i],[aria-label*=paginat i],[aria-label*=pages i]")) {
    const numbers = [...pager.querySelectorAll("*")].filter((e) => !e.children.length && /^\\s*\\d{1,6}\\s*$/.test(e.textContent) && e.checkVisibility());
    const marks = ["[aria-current]:not([aria-current=false])", "[class~=active],[class~=current],[class~=selected]"];
    const shown = [...marks.map((mark) => numbers.filter((e) => { const m = e.closest(mark); return m && m !== pager && pager.contains(m); })),
      numbers.filter((e) => !link(e))].find((found) => found.length === 1);
    const next = shown && numbers.find((e) => link(e) && Number(e.textContent) === Number(shown[0].textContent) + 1);
    if (next) return link(next);
  }
  return null;
}"""


async def next_page_of(page: Page) -> Locator | ElementHandle | None:
    """Return the first usable link or button to the next page, None without one.

    In this order: by its markup, by its name, by the next number.
    """
    candidates = [page.locator(selector) for selector in _NEXT]
    candidates += [page.get_by_role(role, name=_NEXT_NAME) for role in ("link", "button")]
    for found in candidates:
        for index in range(await found.count()):
            one = found.nth(index)
            if await one.is_visible() and await one.is_enabled():
                return one
    return (await page.evaluate_handle(_NUMBERED)).as_element()
