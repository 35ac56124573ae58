"""Elements of a page, found by the target of a step."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from stillweb.proxy.browser.failures import Failed, Unclear
from stillweb.proxy.browser.steps import TARGETS

if TYPE_CHECKING:
    from playwright.async_api import FrameLocator, Locator, Page

LOOK_MS = 2_000  # to list what there is, if an element is missing
_FIELDS = {
    "textbox",
    "searchbox",
    "combobox",
    "listbox",
    "checkbox",
    "radio",
    "switch",
    "spinbutton",
    "slider",
}
_OPERABLE = {*_FIELDS, "button", "link", "tab", "menuitem", "option"}
_NAMED = re.compile(r'^ *- \'?([a-z]+) ("(?:[^"\\]|\\.)*")', re.M)  # a line of an accessibility snapshot
SHOWN = 4  # elements listed in a message if a name means several
# A tag with its id or name, its text, and the nearest ancestor that has an id.
_LOOK = """(e) => {
  const cut = (t) => { const all = (t || "").split(/\\s+/).filter(Boolean).join(" "); return all.length > 30 ? all.slice(0, 30).toWellFormed() + "…" : all; };
  const tag = (n) => n.localName + (n.id ? "#" + n.id : n.getAttribute("name") ? `[name=${n.getAttribute("name")}]` : "");
  const text = cut(e.getAttribute("aria-label") || e.innerText || e.getAttribute("href") || "");
  const around = e.parentElement && e.parentElement.closest("[id]");
  return tag(e) + (text ? ` "${text}"` : "") + (!e.id && around ? ` in ${tag(around)}` : "");
}"""


async def locate(page: Page, given: dict[str, Any]) -> Locator:
    """Return the one visible element that a target means. Raises Failed if there is none, or several."""
    root: Page | FrameLocator = page
    for part in given["frame"].split(">>>") if "frame" in given else ():
        root = root.frame_locator(part.strip())
    way = next(way for way in TARGETS if way in given)
    value, exact = given[way], given.get("exact", False)

    def find(exactly: bool) -> Locator:
        if way == "role":
            return root.get_by_role(value, name=given.get("name"), exact=exactly)
        if way == "label":
            return root.get_by_label(value, exact=exactly)
        if way == "text":
            return root.get_by_text(value, exact=exactly)
        if way == "placeholder":
            return root.get_by_placeholder(value, exact=exactly)
        return root.locator(value)

    for exactly in (True,) if exact or way == "css" else (True, False):
        found = find(exactly)
        places = await _seen(found)
        if not places and (way in ("css", "label") or (way != "text" and await found.count() == 1)):
            places = range(await found.count())  # hidden fields, styled by their labels
        if not places:
            continue
        if "nth" in given:
            if given["nth"] > len(places):
                raise Failed(f"there are only {len(places)} of {named(given)}, not {given['nth']}")
            return found.nth(places[given["nth"] - 1])
        if len(places) == 1:
            return found.nth(places[0])
        if way == "text":  # prefer the text of a link or button to that of a cell
            for role in ("button", "link", "tab", "menuitem", "option"):
                operable = root.get_by_role(role, name=value, exact=exactly)
                seen = await _seen(operable)
                if len(seen) == 1:
                    return operable.nth(seen[0])
        other = "css" if way == "role" else "role"
        several = f"{len(places)} elements ({await _told_apart(found, places)})"
        raise Unclear(f"{named(given)} means {several}: add nth, or name it by {other}")
    raise Unclear(f"no element with {named(given)} on {page.url}{await _there(root, given)}")


async def _there(root: Page | FrameLocator, given: dict[str, Any]) -> str:
    """Return a text that lists the elements of the sought kind with the most similar names.

    Returns "" if there are none, or no such frame.
    """
    from playwright.async_api import Error

    if "css" in given:
        return ""
    try:
        seen = await root.locator("body").aria_snapshot(timeout=LOOK_MS)
    except Error:
        return ""
    way = next(way for way in TARGETS if way in given)
    roles = {given["role"]} if way == "role" else _FIELDS if way in ("label", "placeholder") else _OPERABLE
    there = dict.fromkeys((role, json.loads(name)) for role, name in _NAMED.findall(seen) if role in roles)
    sought = str(given.get("name", given[way])).casefold()
    near = sorted(there, key=lambda one: -SequenceMatcher(None, sought, one[1].casefold()).ratio())
    told = ", ".join(f"{role} {name!r}" for role, name in near[:SHOWN])
    return f" (it has {told}{', …' if len(near) > SHOWN else ''})" if told else ""


async def _told_apart(found: Locator, places: Sequence[int]) -> str:
    """Return the first of several elements, each with its `nth` and what a person may know it by."""
    said = [
        f"{nth}: {await found.nth(place).evaluate(_LOOK)}"
        for nth, place in enumerate(places[:SHOWN], start=1)
    ]
    return ", ".join([*said, "…"] if len(places) > SHOWN else said)


async def _seen(found: Locator) -> range | list[int]:
    """Return the indexes of the visible ones of the first 200 elements.

    Elements are asked one by one only if some are hidden.
    """
    count = await found.count()
    if not count or await found.filter(visible=True).count() == count:
        return range(count)
    return [i for i in range(min(count, 200)) if await found.nth(i).is_visible()]


def named(given: dict[str, Any]) -> str:
    """Return the target in words."""
    way = next((way for way in TARGETS if way in given), None)
    if way is None:
        return "the page"
    name = f" {given['name']!r}" if "name" in given else ""
    return f"{way} {given[way]!r}{name}"
