"""The driver of a browser page: elements found by a step's target, steps performed, banners closed."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from stillweb.proxy.browser.errors import (
    AmbiguousElement,
    PageFailed,
    UnusableElement,
    answered,
    first_line,
    forbidden_scheme,
)
from stillweb.proxy.browser.freeze import ask_all, begin_step, pass_time, settle
from stillweb.proxy.browser.newest import Newest
from stillweb.proxy.browser.settle import SettleResult, SettleTimeouts, Traffic
from stillweb.proxy.browser.steps import TARGETS
from stillweb.proxy.browser.uploads import upload
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, secret_field
from stillweb.snapshots.view import Step

if TYPE_CHECKING:
    from playwright.async_api import (
        BrowserContext,
        Download,
        ElementHandle,
        FrameLocator,
        Locator,
        Page,
        Response,
    )

    from stillweb.snapshots.secrets.redact import Redactor

LOOK_MS = 2_000  # to list what there is, if an element is missing
_FIELDS = {
    "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "switch", "spinbutton", "slider"
}  # fmt: skip
_OPERABLE = {*_FIELDS, "button", "link", "tab", "menuitem", "option"}
_NAMED = re.compile(r'^ *- \'?([a-z]+) ("(?:[^"\\]|\\.)*")', re.M)  # a line of an accessibility snapshot
MOST_DOWNLOADS = 100  # downloads of a page that are kept; it may start them in a loop
MOST_DIALOGS = 100  # dialogs of a page whose texts are kept; a page may open them in a loop
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
    """Return the one visible element that a target means. Raises PageFailed if there is none, or several."""
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
                raise PageFailed(
                    f"there are only {len(places)} elements with {describe_target(given)}, not {given['nth']}"
                )
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
        raise AmbiguousElement(f"{describe_target(given)} means {several}: add nth, or name it by {other}")
    raise AmbiguousElement(
        f"no element with {describe_target(given)} on {page.url}{await _there(root, given)}"
    )


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
    listed = ", ".join(f"{role} {name!r}" for role, name in near[:SHOWN])
    return f" (it has {listed}{', …' if len(near) > SHOWN else ''})" if listed else ""


async def _told_apart(found: Locator, places: Sequence[int]) -> str:
    """Return the first of several elements, each with its `nth` and what a person may know it by."""
    lines = [
        f"{nth}: {await found.nth(place).evaluate(_LOOK)}"
        for nth, place in enumerate(places[:SHOWN], start=1)
    ]
    return ", ".join([*lines, "…"] if len(places) > SHOWN else lines)


async def _seen(found: Locator) -> range | list[int]:
    """Return the indexes of the visible ones of the first 200 elements.

    Elements are asked one by one only if some are hidden.
    """
    count = await found.count()
    if not count or await found.filter(visible=True).count() == count:
        return range(count)
    return [i for i in range(min(count, 200)) if await found.nth(i).is_visible()]


def describe_target(given: dict[str, Any]) -> str:
    """Return the target in words."""
    way = next((way for way in TARGETS if way in given), None)
    if way is None:
        return "the page"
    name = f" {given['name']!r}" if "name" in given else ""
    return f"{way} {given[way]!r}{name}"


_NEXT = ('a[rel~="next"]:visible', '[aria-label*="next" i]:is(a,button,[role=button],[role=link]):visible')
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


SAVED = "Download is starting"  # Playwright's error text for an address that the browser saves as a file
ACTION_MS = 30_000  # a browser without processor time needs seconds to see that an element is stable
_INSIDE = "(e, end) => { e.scrollTop = end ? e.scrollHeight : 0; }"
# Scrolls from `y` down to `end`, a screen at a time, until a request starts. Returns the position and whether
# the end is reached.
_SCROLL = """async ([y, end]) => {
  const held = globalThis[Symbol.for("stillweb")];
  const began = held ? held.status().started : 0;
  for (;;) {
    scrollTo(0, Math.min(y, end));
    const state = held ? await held.frames() : null;
    if (y >= end) return [y, true];
    y += Math.max(1, innerHeight);
    if (state && (state.pending || state.started !== began)) return [y, false];
  }
}"""
_HEIGHT = "() => [document.documentElement ? document.documentElement.scrollHeight : 0, innerHeight]"
# True for a field that exists but can't be clicked: clipped away, outside the page, or without pointer
# events.
_DRAWN_BY_LABEL = """(e) => { const s = getComputedStyle(e);
  return s.pointerEvents === "none" || s.clip !== "auto" || e.getBoundingClientRect().right + scrollX <= 0; }"""
# Where a click on a label reaches its field: the part of the label, and x and y within that part, not on a
# link or button in it.
_ON_LABEL = """(e) => {
  const others = "a[href],button,input,select,textarea,summary,[role=button],[role=link],[contenteditable]";
  for (const label of e.labels || []) for (const part of [label, ...label.querySelectorAll("*")]) {
    if (!part.checkVisibility({ visibilityProperty: true }) || getComputedStyle(part).pointerEvents === "none") continue;
    if (!part.getClientRects().length) continue;
    part.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    const whole = part.getBoundingClientRect();
    for (const box of part.getClientRects()) for (const [across, down] of [[.5, .5], [.1, .5], [.9, .5], [.02, .5], [.98, .5], [.5, .1], [.5, .9]]) {
      const x = box.x + box.width * across, y = box.y + box.height * down;
      const hit = part.getRootNode().elementFromPoint(x, y), other = hit && hit.closest(others);
      if (!hit || !label.contains(hit) || (other && other !== e && label.contains(other))) continue;
      const style = getComputedStyle(part); // from the padding's edge, as a click's position is told
      return { part, x: x - whole.x - parseFloat(style.borderLeftWidth), y: y - whole.y - parseFloat(style.borderTopWidth) };
    }
  }
  return null;
}"""
# For each option: its label, its text and its value.
_OPTIONS = """(e) => [...e.options].map((o) => [...[o.label, o.textContent].map((t) => t.split(/\\s+/).filter(Boolean).join(" ")), o.value])"""
MOST_CONSENTS = 2  # buttons of a banner: its choices, and the refusal in them
MOST_TABS = 20  # tabs that follow from each other after one step
MOST_SCROLLS = 40  # screens that a page is scrolled down at a time


class Driver:
    """A browser context driven step by step, one page at a time.

    Make it before the context has pages, or give it the context's `traffic` and the `page` to act on. A
    `redactor` learns values that are filled into secret fields; `public` returns a step as it may be stored.
    `files` maps digests to the files to upload.
    """

    def __init__(
        self,
        context: BrowserContext,
        *,
        patience: SettleTimeouts | None = None,
        traffic: Traffic | None = None,
        page: Page | None = None,
        redactor: Redactor | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self.context = context
        self.patience = patience or SettleTimeouts()
        self.traffic = traffic or Traffic(context)
        self.script_errors = 0
        self.dialogs: list[str] = []
        self.downloads: Newest[str] = Newest(MOST_DOWNLOADS, len)
        self.saved: Newest[Download] = Newest(MOST_DOWNLOADS, lambda download: len(download.url))
        self.dismissed: str | None = None
        self.redactor = redactor
        self.files = files or {}  # by digest
        self.hidden: dict[str, str] = {}  # values filled into secret fields, and their pseudonyms
        self._page: Page | None = page
        self._opened: list[Page] = []
        context.on("page", self._new_page)
        context.on("weberror", self._script_error)

    def _new_page(self, page: Page) -> None:
        self._opened.append(page)
        page.on("download", self._download)

    def _script_error(self, _: object) -> None:
        self.script_errors += 1

    async def _download(self, download: Download) -> None:
        self.downloads.append(download.url)
        self.saved.append(download)

    @property
    def page(self) -> Page:
        """The page that steps act on: the newest that the steps opened."""
        assert self._page is not None, "open() first"
        return self._page

    async def wait_until_quiet(self) -> SettleResult:
        """Wait until the page is quiet. Follow it to a new tab, and back from a tab that closed itself."""
        for _ in range(MOST_TABS):
            calm = await settle(self.page, self.traffic, self.patience)
            newer = [page for page in self._opened if page is not self._page and not page.is_closed()]
            self._opened.clear()
            if newer:
                self._page = newer[-1]
            elif self.page.is_closed() and self.context.pages:
                self._page = self.context.pages[-1]
            else:
                break
        return calm

    async def open(self, url: str, *, anew: bool = True) -> tuple[Response | None, SettleResult]:
        """Load a URL and wait until the page is quiet. Raises PageFailed with the network's reason.

        With `anew` false, the load counts as one of the steps done so far. Every address that a browser opens
        passes here, so refused schemes are never opened. Chromium itself keeps a page's requests (links,
        scripts, redirects, frames) from the browser's own pages and from files.
        """
        if scheme := forbidden_scheme(url):
            raise PageFailed(
                f"{url}: pages of the scheme {scheme}: are never opened. Name an http or https address"
            )
        if anew:
            self.traffic.steps = 0
        if self._page is None:
            self._page = await self.traffic.new_page()
            self._page.set_default_timeout(ACTION_MS)
            self._page.on("dialog", self._answer)
            self._opened.clear()
        try:
            response = await self.page.goto(url, wait_until="commit", timeout=self.patience.real * 1000)
        except PlaywrightTimeout:
            raise PageFailed(f"{url}: no answer within {self.patience.real:g} s") from None
        except PlaywrightError as error:
            raise PageFailed(f"{url}: {first_line(error).partition(' at http')[0]}") from None
        verdict = response.headers.get("stillweb-verdict", "") if response is not None else ""
        if verdict.partition(":")[0] in ("miss", "failed"):
            raise PageFailed(f"{url}: not in the snapshot ({verdict})")
        return response, await self.wait_until_quiet()

    async def _answer(self, dialog: Any) -> None:
        if len(self.dialogs) < MOST_DIALOGS:
            self.dialogs.append(f"{dialog.type}: {dialog.message}")
        elif len(self.dialogs) == MOST_DIALOGS:
            self.dialogs.append("more dialogs: left out")
        try:
            await dialog.accept(*([dialog.default_value] if dialog.type == "prompt" else []))
        except PlaywrightError:
            return  # the dialog went with its page

    async def scroll_through(self) -> SettleResult:
        """Show every part of the page once, to load what loads late, and go back to the top."""
        calm = SettleResult(True, 0.0, 0)
        height = 0
        for _ in range(3):  # an endless page is followed three times
            size = await answered(self.page.evaluate(_HEIGHT))
            if size[0] <= max(size[1], height):
                break
            height = size[0]
            calm = await self._scroll_down()
        if height:
            await answered(self.page.evaluate("() => scrollTo(0, 0)"))
            calm = await self.wait_until_quiet()
        return calm

    async def _scroll_down(self) -> SettleResult:
        """Scroll to the current end and no further, waiting for each request on the way.

        So the result does not depend on the network's speed.
        """
        height, screen = await answered(self.page.evaluate(_HEIGHT))
        y, done = min(screen, height), False
        end = min(height, MOST_SCROLLS * screen)
        while not done:
            y, done = await answered(self.page.evaluate(_SCROLL, [y, end]))
            calm = await self.wait_until_quiet()
        if end < height:
            await answered(self.page.evaluate(_SCROLL, [height, height]))
            calm = await self.wait_until_quiet()
        return calm

    async def dismiss_banner(self) -> str | None:
        """Close a cookie banner with the least consent. Return the buttons' names, None without a banner.

        A banner that offers no refusal, but choices, is refused in those.
        """
        names: list[str] = []
        while len(names) < MOST_CONSENTS:
            found = await least_consent(self.page, within=bool(names))
            if found is None:
                break
            button, name, kind = found
            await button.click(timeout=ACTION_MS)
            await self.wait_until_quiet()
            names.append(name)
            if kind != "settings":
                break
        self.dismissed = ", ".join(names) or None
        return self.dismissed

    async def open_start(self, url: str) -> tuple[Response | None, SettleResult]:
        """Load a URL, dismiss a banner and scroll through: the state of a view without steps."""
        response, calm = await self.open(url)
        if response is not None and "html" in response.headers.get("content-type", "html"):
            await self.dismiss_banner()
            later = await self.scroll_through()
            calm = calm if not calm.quiet else later
        return response, calm

    async def perform(self, step: Step, number: int = 1) -> SettleResult:
        """Perform a canonical step and wait until the page is quiet. Raises PageFailed, naming the step."""
        action, given = next(iter(step.items()))
        before = len(self.traffic.answers)
        await begin_step(self.page, self.traffic)
        try:
            calm = await getattr(self, f"_{action}")(given)
        except PageFailed as error:
            raise type(error)(f"step {number}: {action}: {error}") from None
        except PlaywrightTimeout:
            raise UnusableElement(
                f"step {number}: {action}: {describe_target(given)} can't be used (hidden, covered or moving)"
            ) from None
        except PlaywrightError as error:
            raise PageFailed(f"step {number}: {action}: {first_line(error)}") from None
        calm = calm if calm is not None else await self.wait_until_quiet()
        for missed in self.traffic.missed(before):
            if missed.kind == "document":
                raise PageFailed(f"step {number}: {action}: {missed.url}: not in the snapshot (miss)")
        return calm

    # ---- the actions

    async def _goto(self, given: dict[str, Any]) -> SettleResult:
        try:
            url = urljoin(self.page.url, given["url"])
        except ValueError as error:
            raise PageFailed(f"{given['url']}: is not a URL ({error})") from None
        try:
            _, calm = await self.open(url, anew=False)
        except PageFailed as error:
            if SAVED not in str(error):
                raise
            return await self.wait_until_quiet()  # the page stays as it is
        return calm

    async def _select(self, given: dict[str, Any]) -> None:
        element = await locate(self.page, given)
        way = "option" if "option" in given else "value"
        wanted = given[way] if isinstance(given[way], list) else [given[way]]
        if await answered(element.evaluate("(e) => e.localName")) != "select":
            raise PageFailed(f"{describe_target(given)} is not a select element; use click")
        known: list[list[str]] = await answered(element.evaluate(_OPTIONS))
        places = []
        for one in wanted:
            asked = " ".join(one.split()) if way == "option" else one
            place = next(
                (
                    i
                    for i, (*texts, value) in enumerate(known)
                    if asked in (texts if way == "option" else [value])
                ),
                None,
            )
            if place is None:
                has = ", ".join(repr(texts[0]) for texts in known[:12])
                raise PageFailed(
                    f"{describe_target(given)} has no {way} {one!r} (it has {has}{', …' if len(known) > 12 else ''})"
                )
            places.append(place)
        await element.select_option(index=places, timeout=ACTION_MS)

    async def _fill(self, given: dict[str, Any]) -> None:
        element = await locate(self.page, given)
        if self.redactor is not None:
            await self._learn(self.redactor, element, given["value"])
        await element.fill(given["value"], timeout=ACTION_MS)

    async def _learn(self, redactor: Redactor, element: Locator, value: str) -> None:
        kind, *names = await answered(element.evaluate("(e) => [e.type || '', e.name || '', e.id || '']"))
        if not value or PSEUDONYM_TEXT.fullmatch(value):
            return
        if kind == "password" or any(secret_field(name, value) for name in names):
            self.hidden[value] = redactor.learn(value)

    def public(self, step: Step) -> Step:
        """Return the step as it may be stored, with a pseudonym for a secret that was filled in.

        The pseudonym fits the answers in replay, which hold it too.
        """
        given = step.get("fill")
        if given is None or given["value"] not in self.hidden:
            return step
        return {"fill": {**given, "value": self.hidden[given["value"]]}}

    async def _upload(self, given: dict[str, Any]) -> None:
        element = await locate(self.page, given)
        await upload(element, self.page, given, self.files, self.redactor, named=describe_target(given))

    async def _check(self, given: dict[str, Any]) -> None:
        await self._tick(given, True)

    async def _uncheck(self, given: dict[str, Any]) -> None:
        await self._tick(given, False)

    async def _tick(self, given: dict[str, Any], wanted: bool) -> None:
        element = await locate(self.page, given)
        if await element.is_checked() == wanted:
            return
        before = len(self.traffic.answers)
        plain = await element.is_visible() and not await answered(element.evaluate(_DRAWN_BY_LABEL))
        if plain or not await self._click_label(element):
            await element.click(timeout=ACTION_MS)
        await self.wait_until_quiet()
        if any(answer.kind == "document" for answer in self.traffic.answers[before:]):
            return  # the click loaded a new document, which shows the choice in its own way
        if await element.is_checked() != wanted:
            raise PageFailed(f"{describe_target(given)} did not change when it was clicked")

    async def _click_label(self, element: Locator) -> bool:
        """Click a field's label, as a person does who can't see the field. Return False if impossible."""
        found = await answered(element.evaluate_handle(_ON_LABEL))
        place = await answered(found.evaluate("(o) => o && {x: o.x, y: o.y}"))
        if place is None:
            return False
        part = (await found.get_property("part")).as_element()
        assert part is not None
        await part.click(position=place, timeout=ACTION_MS)
        return True

    async def _click(self, given: dict[str, Any]) -> None:
        element = await locate(self.page, given)
        await element.click(timeout=ACTION_MS)

    async def _press(self, given: dict[str, Any]) -> None:
        if any(way in given for way in TARGETS):
            await (await locate(self.page, given)).press(given["key"], timeout=ACTION_MS)
        else:
            await self.page.keyboard.press(given["key"])

    async def _wait(self, given: dict[str, Any]) -> SettleResult:
        if "time" in given:
            return await pass_time(self.page, self.traffic, given["time"], self.patience)
        for turn in range(20):  # ten seconds of the page's own time
            if "selector" in given:
                found = self.page.locator(given["selector"])
            else:
                found = self.page.get_by_text(str(given.get("text", given.get("gone"))))
            there = await found.filter(visible=True).count() > 0
            if there != ("gone" in given):
                return await self.wait_until_quiet()
            if turn == 0 and await self._stream_fulfilled(found, "gone" in given):
                continue
            await pass_time(self.page, self.traffic, 0.5, self.patience)
        what = given.get("selector") or given.get("text") or given.get("gone")
        raise PageFailed(
            f"{what!r} {'stays' if 'gone' in given else 'does not appear'} within 10 s of the page's time"
        )

    async def _stream_fulfilled(self, found: Locator, gone: bool) -> bool:
        """Return True if a message of a stream fulfilled the wait while recording.

        The page's clock stands still meanwhile, as in replay the message comes at once.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience.stuck
        ask = functools.partial(ask_all, self.page, "hearing()")
        while self.traffic.streams and (state := await ask()) is not None and not state["replay"]:
            if not await self.traffic.silence.breaks(state, ask, until):
                return False
            if (await found.filter(visible=True).count() > 0) != gone:
                return True
        return False

    async def _scroll(self, given: dict[str, Any]) -> SettleResult:
        calm = SettleResult(True, 0.0, 0)
        for _ in range(given.get("times", 1)):
            if any(way in given for way in TARGETS):
                element = await locate(self.page, given)
                if given["to"] == "view":
                    await element.scroll_into_view_if_needed(timeout=ACTION_MS)
                else:
                    await answered(element.evaluate(_INSIDE, given["to"] == "bottom"))
            elif given["to"] == "bottom":
                await self._scroll_down()
            else:
                await answered(self.page.evaluate("() => scrollTo(0, 0)"))
            calm = await self.wait_until_quiet()
        return calm

    async def _next_page(self, given: dict[str, Any]) -> None:
        if any(way in given for way in TARGETS):
            await self._click(given)
            return
        found = await next_page_of(self.page)
        if found is None:
            raise PageFailed(f"no link or button to a next page on {self.page.url}")
        await found.click(timeout=ACTION_MS)


# Least consent first. An acknowledgement of a banner without a choice ("OK") gives no more than it asks for.
LEAST_FIRST = ("reject", "settings", "acknowledge", "accept")
LEAST_WITHIN = ("reject", "save", "accept", "acknowledge")  # in the choices that a settings button opened


@functools.cache
def _consent_patterns() -> str:
    """Return the patterns by kind, as JSON: Playwright would take apart and check each value of an object."""
    folder = files("stillweb.proxy.browser")
    own, theirs = (
        json.loads(folder.joinpath(name).read_text(encoding="utf-8"))
        for name in ("consent.json", "consent_autoconsent.json")
    )
    kinds = {*own, *theirs} - {"source", "licence"}
    return json.dumps({kind: [*theirs.get(kind, []), *own.get(kind, [])] for kind in kinds})


@functools.cache
def _consent_finder() -> str:
    text = files("stillweb.proxy.browser").joinpath("consent.js").read_text(encoding="utf-8")
    return text[text.index("([patterns, order])") :]


async def least_consent(page: Page, *, within: bool = False) -> tuple[ElementHandle, str, str] | None:
    """Return the button of a page's cookie banner that consents to least, its text and kind; None without one.

    `within` looks through the choices that a settings button opened.
    """
    order = list(LEAST_WITHIN if within else LEAST_FIRST)
    best: tuple[ElementHandle, str, str] | None = None
    for frame in page.frames:
        try:
            handle = await answered(frame.evaluate_handle(_consent_finder(), [_consent_patterns(), order]))
            words = await answered(handle.evaluate("(found) => found && found.slice(1)"))
            if words is None:
                continue
            button = (await handle.get_property("0")).as_element()
        except PlaywrightError:
            continue  # the frame goes away, or shows no document
        if button is not None and (best is None or order.index(words[1]) < order.index(best[2])):
            best = (button, words[0], words[1])
    return best
