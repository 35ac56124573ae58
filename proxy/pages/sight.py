"""What a page shows at one moment: picture, markup, accessibility tree, visible text and the state it is in."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.pages.answered import SECONDS, answered

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Page

_BODY = re.compile(r"<!doctype[^>]*>|</?(?:html|head|body)\b[^>]*>", re.IGNORECASE)
_HAS = "() => [document.querySelector('body,frameset') !== null, document.documentElement !== null]"
_REFERENCE = re.compile(r" \[(?:ref=[a-z0-9]+|active|cursor=pointer)\]")


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a page. `png` is empty when no picture was asked for, or nothing is drawn; `state` is JSON-ready."""

    url: str
    title: str
    text: str
    html: str
    aria: str
    png: bytes
    state: dict[str, Any]
    pdfs: tuple[str, ...] = ()
    veiled: bool = False  # a secret could be read on it, and was replaced

    @property
    def fingerprint(self) -> str:
        """What makes it another view for a person: where it is and what it says."""
        return hashlib.sha256(f"{self.url}\n{self.text}".encode(errors="replace")).hexdigest()

    @property
    def look(self) -> str:
        """The same without the address: two ways to one view have one look."""
        return hashlib.sha256(f"{self.text}\n\0{self.aria}".encode(errors="replace")).hexdigest()


@functools.cache
def reader() -> str:
    """The JavaScript that reads a document (page.js)."""
    return files("stillweb.proxy.pages").joinpath("page.js").read_text(encoding="utf-8")


def tidy(text: str) -> str:
    """Visible text with spaces at line ends and runs of empty lines removed."""
    lines = [re.sub(r"[ \t\u00a0]+", " ", line).strip() for line in text.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def without_references(aria: str) -> str:
    """An accessibility snapshot without what differs from one reading to the next."""
    return _REFERENCE.sub("", aria)


async def readable(page: Page) -> Page | Locator | None:
    """What an accessibility snapshot is to be asked of: Playwright would wait in vain for a body that the page lacks.

    A document without a body, as an SVG is, is read from its root; None is for one that broke off before it had a root.
    """
    has_body, has_root = await answered(page.evaluate(_HAS))
    if not has_root:
        return None
    return page if has_body else page.locator(":root")


async def accessibility(page: Page) -> str:
    """The accessibility snapshot of a page and its frames, without references; "" is that of one without a root."""
    read = await readable(page)
    if read is None:
        return ""
    return without_references(await read.aria_snapshot(mode="ai", timeout=SECONDS * 1000))


async def shows_pdf(page: Page) -> bool:
    """Whether a page is the browser's viewer of a PDF, which is none of the site's."""
    return bool(await answered(page.evaluate("() => document.contentType === 'application/pdf'")))


async def _read(frame: Frame) -> dict[str, Any] | None:
    if not frame.url:  # Chromium refused its address: it has no document, and would let wait in vain
        return None
    try:
        return await answered(frame.evaluate(reader()))
    except PlaywrightError:
        return None  # a frame that went away, or shows what has no document


# A bar that only says that something goes on is drawn by the machine's clock.
STILL = "progress:indeterminate { appearance: none !important }"


async def picture(page: Page, *, full: bool = False) -> bytes:
    """A PNG of the viewport with animations ended and no caret; retried once, as drawing may be busy.

    b"" of a document that broke off before it had a root: the browser draws none and would let wait in vain.
    """
    if not (await answered(page.evaluate(_HAS)))[1]:
        return b""
    for last in (False, True):
        try:
            return await page.screenshot(
                animations="disabled",
                caret="hide",
                style=STILL,
                scale="css",
                type="png",
                full_page=full,
                timeout=SECONDS * 1000,
            )
        except PlaywrightError:
            if last:
                raise
    raise AssertionError


_ITS_PLACE = """(e) => {
  if (e.id && document.querySelectorAll(`#${CSS.escape(e.id)}`).length === 1) return `#${CSS.escape(e.id)}`;
  for (const name of ["name", "title", "src"]) {
    const value = e.getAttribute(name), css = `${e.localName}[${name}="${CSS.escape(value || "")}"]`;
    if (value && document.querySelectorAll(css).length === 1) return css;
  }
  const parts = [];
  for (let n = e; n && n !== document.documentElement; n = n.parentElement)
    parts.unshift(`${n.localName}:nth-of-type(${[...n.parentNode.children].filter((c) => c.localName === n.localName).indexOf(n) + 1})`);
  return parts.join(" > ");
}"""


async def place_of(frame: Frame) -> str | None:
    """A frame as steps name it: the selector of its element, `outer >>> inner` for one in another; None if unseen."""
    parts: list[str] = []
    one = frame
    while one.parent_frame is not None:
        element = await one.frame_element()
        if not await element.is_visible():
            return None
        parts.insert(0, await answered(element.evaluate(_ITS_PLACE)))
        one = one.parent_frame
    return " >>> ".join(parts)


_LISTS = ("fields", "tabs", "chosen", "sort", "open")


async def state_of(page: Page) -> dict[str, Any]:
    """The retrieval state of a page with its frames. Raises Playwright's Error when the page is gone."""
    main = await answered(page.evaluate(reader()))
    return _joined(main["state"], [await _read(frame) for frame in page.frames[1:]])


def _joined(state: dict[str, Any], inner: list[dict[str, Any] | None]) -> dict[str, Any]:
    """The state with what stands in frames: their fields, tabs, … after the page's own; its page number if it has none."""
    for read in inner:
        if read is None:
            continue
        for name in _LISTS:
            if read["state"].get(name):
                state[name] = [*state.get(name, []), *read["state"][name]]
        if "page" in read["state"]:
            state.setdefault("page", read["state"]["page"])
    return state


def _with_frames(html: str, inner: list[dict[str, Any] | None]) -> str:
    """The markup with that of the frames at its end, each in an element `stillweb-frame`, whose `src` is the frame's URL."""
    parts = [
        f'<stillweb-frame src="{escape(read["url"])}">\n{_BODY.sub("", read["html"])}\n</stillweb-frame>\n'
        for read in inner
        if read is not None and read["html"] and read["text"].strip()
    ]
    if not parts:
        return html
    at = html.lower().rfind("</body>")
    at = len(html) if at < 0 else at
    return f"{html[:at]}\n{''.join(parts)}{html[at:]}"


async def look_at(page: Page, *, with_picture: bool = True) -> Sight:
    """Read a settled page with its frames. Raises Playwright's Error when the page is gone."""
    frames = [frame for frame in page.frames if frame is not page.main_frame]
    main, aria, *inner = await asyncio.gather(
        answered(page.evaluate(reader())), accessibility(page), *(_read(frame) for frame in frames)
    )
    assert isinstance(main, dict)
    texts = [main["text"]]
    pdfs = list(main["pdfs"])
    framed = [read if isinstance(read, dict) else None for read in inner]
    for read in framed:
        if read is not None:
            texts.append(read["text"])
            pdfs += read["pdfs"]
    return Sight(
        url=main["url"],
        title=main["title"],
        text=tidy("\n\n".join(texts)),
        html=_with_frames(main["html"], framed),
        aria=str(aria),
        png=await picture(page) if with_picture else b"",
        state=_joined(main["state"], framed),
        pdfs=tuple(dict.fromkeys(pdfs)),
    )
