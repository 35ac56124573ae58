"""Cookie banners: the button that consents to least, in a page, its frames and its open shadow roots.

The patterns of buttons and banners are autoconsent's (consent_autoconsent.json) and our own for languages and
wordings that it lacks (consent.json).
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import TYPE_CHECKING

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.bounded_evaluate import answered

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Page

# Least consent first. An acknowledgement of a banner without a choice ("OK") gives no more than it asks for.
FIRST = ("reject", "settings", "acknowledge", "accept")
WITHIN = ("reject", "save", "accept", "acknowledge")  # in the choices that a settings button opened


@functools.cache
def _patterns() -> str:
    """Return the patterns by kind, as JSON: Playwright would take apart and check each value of an object."""
    folder = files("stillweb.proxy.browser")
    own, theirs = (
        json.loads(folder.joinpath(name).read_text(encoding="utf-8"))
        for name in ("consent.json", "consent_autoconsent.json")
    )
    kinds = {*own, *theirs} - {"source", "licence"}
    return json.dumps({kind: [*theirs.get(kind, []), *own.get(kind, [])] for kind in kinds})


@functools.cache
def _finder() -> str:
    text = files("stillweb.proxy.browser").joinpath("consent.js").read_text(encoding="utf-8")
    return text[text.index("([patterns, order])") :]


async def least_consent(page: Page, *, within: bool = False) -> tuple[ElementHandle, str, str] | None:
    """Return the button of a page's cookie banner that consents to least, its text and kind; None without one.

    `within` looks through the choices that a settings button opened.
    """
    order = list(WITHIN if within else FIRST)
    best: tuple[ElementHandle, str, str] | None = None
    for frame in page.frames:
        try:
            handle = await answered(frame.evaluate_handle(_finder(), [_patterns(), order]))
            words = await answered(handle.evaluate("(found) => found && found.slice(1)"))
            if words is None:
                continue
            button = (await handle.get_property("0")).as_element()
        except PlaywrightError:
            continue  # the frame goes away, or shows no document
        if button is not None and (best is None or order.index(words[1]) < order.index(best[2])):
            best = (button, words[0], words[1])
    return best
