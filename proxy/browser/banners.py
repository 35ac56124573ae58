"""Cookie banners: found by their words, closed by the button that consents to least."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stillweb.proxy.browser.answered import answered

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_BANNER = re.compile(r"cookie|consent|privacy|datenschutz|gdpr", re.IGNORECASE)
_DISMISS = (  # least consent first
    re.compile(
        r"^(reject( all)?|decline( all)?|refuse( all)?|only necessary|necessary only|alle ablehnen|tout refuser)$",
        re.I,
    ),
    re.compile(
        r"^(accept( all)?( cookies)?|allow all( cookies)?|i agree|agree|got it!?|ok|alle akzeptieren|tout accepter)$",
        re.I,
    ),
)
_AROUND = """(e) => { let n = e; for (let i = 0; i < 6 && n.parentElement && n.parentElement !== document.body; i++)
n = n.parentElement; return (n.id + " " + n.className + " " + n.innerText).slice(0, 2000); }"""


async def button_of(page: Page) -> tuple[Locator, str] | None:
    """Return the button that closes a page's banner, and its name; None without a banner."""
    words = "document.body ? document.body.innerText.slice(0, 200000) : ''"
    if not _BANNER.search(await answered(page.evaluate(f"() => {words}"))):
        return None
    for pattern in _DISMISS:
        buttons = page.get_by_role("button", name=pattern)
        for index in range(min(await buttons.count(), 3)):
            button = buttons.nth(index)
            if await button.is_visible() and _BANNER.search(await answered(button.evaluate(_AROUND))):
                return button, (await button.inner_text()).strip()
    return None
