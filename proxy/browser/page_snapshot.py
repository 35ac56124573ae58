"""A snapshot of a page at one moment, and its redaction: picture, markup, accessibility tree, text, state."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.errors import SECONDS, answered

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Page

    from stillweb.snapshots.secrets.redact import Redactor

_BODY = re.compile(r"<!doctype[^>]*>|</?(?:html|head|body)\b[^>]*>", re.IGNORECASE)
_HAS = "() => [document.querySelector('body,frameset') !== null, document.documentElement !== null]"
_FONTS = "async () => { await document.fonts?.ready }"
_REFERENCE = re.compile(r" \[(?:ref=[a-z0-9]+|active|cursor=pointer)\]")


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """The content of a page at one moment.

    `png` is empty if no picture was asked for, or nothing is drawn. `state` is JSON-ready.
    """

    url: str
    title: str
    text: str
    html: str
    aria: str
    png: bytes
    state: dict[str, Any]
    pdfs: tuple[str, ...] = ()
    redacted: bool = False  # a secret was readable on it, and was replaced

    @property
    def fingerprint(self) -> str:
        """A hash of the URL and the text, which make it another view for a person."""
        return hashlib.sha256(f"{self.url}\n{self.text}".encode(errors="replace")).hexdigest()

    @property
    def look(self) -> str:
        """A hash of text and accessibility tree, without the URL: two ways to one view have one look."""
        return hashlib.sha256(f"{self.text}\n\0{self.aria}".encode(errors="replace")).hexdigest()


@functools.cache
def reader() -> str:
    """Return the JavaScript that reads a document (page.js)."""
    return files("stillweb.proxy.browser").joinpath("page.js").read_text(encoding="utf-8")


def tidy(text: str) -> str:
    """Return visible text without spaces at line ends and runs of empty lines."""
    lines = [re.sub(r"[ \t\u00a0]+", " ", line).strip() for line in text.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def without_references(aria: str) -> str:
    """Return an accessibility snapshot without the references that differ between two readings."""
    return _REFERENCE.sub("", aria)


async def accessible_root(page: Page) -> Page | Locator | None:
    """Return the page, or the element in it, from which to take an accessibility snapshot.

    Playwright would wait in vain for a body that the page lacks, so a document without one, such as an SVG,
    is read from its root. Returns None for a document that broke off before it had a root.
    """
    has_body, has_root = await answered(page.evaluate(_HAS))
    if not has_root:
        return None
    return page if has_body else page.locator(":root")


async def accessibility(page: Page) -> str:
    """Return the accessibility snapshot of a page and its frames; "" if the page has no root."""
    read = await accessible_root(page)
    if read is None:
        return ""
    return without_references(await read.aria_snapshot(mode="ai", timeout=SECONDS * 1000))


async def shows_pdf(page: Page) -> bool:
    """Return True if a page is the browser's PDF viewer, which is not the site's."""
    return bool(await answered(page.evaluate("() => document.contentType === 'application/pdf'")))


async def _read(frame: Frame, only: str | None = None) -> dict[str, Any] | None:
    if not frame.url:  # Chromium refused its address: it has no document, and an evaluation would never end
        return None
    if frame.url.startswith("chrome-extension:"):  # the PDF viewer's buttons, which come when Chromium likes
        return None
    try:
        return await answered(frame.evaluate(reader(), only))
    except PlaywrightError:
        return None  # a frame that went away, or shows no document


# An indeterminate progress bar is animated by the machine's clock.
STILL = "progress:indeterminate { appearance: none !important }"
# Seconds that a picture waits for the page's fonts: the page has been quiet before, or will never be.
FONTS = 5.0


async def take_picture(page: Page) -> bytes:
    """Return a PNG of the viewport with animations ended and no caret.

    It is retried once, as drawing may be busy. Returns b"" for a document that broke off before it had a
    root: the browser draws none, and a screenshot would wait in vain.
    """
    if not (await answered(page.evaluate(_HAS)))[1]:
        return b""
    for last in (False, True):
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(page.evaluate(_FONTS), FONTS)
            return await page.screenshot(
                animations="disabled",
                caret="hide",
                style=STILL,
                scale="css",
                type="png",
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
    """Return a frame's selector as steps use it, `outer >>> inner` for a nested one; None if it is hidden."""
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
    """Return the retrieval state of a page with its frames. Raises Playwright's Error if the page is gone."""
    main = await answered(page.evaluate(reader(), "state"))
    return _joined(main["state"], [await _read(frame, "state") for frame in page.frames[1:]])


def _joined(state: dict[str, Any], inner: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Return the page's state with that of its frames: their fields, tabs, … follow the page's own.

    The page number comes from a frame only if the page has none.
    """
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
    """Return the markup with that of the frames at its end.

    Each frame is in an element `stillweb-frame`, whose `src` is the frame's URL.
    """
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


def resources_of(content: PageSnapshot) -> dict[str, bytes]:
    """Return the resources of a view that shows a page so: kind -> bytes."""
    return {
        "view": content.png,
        "dom": content.html.encode("utf-8", "surrogatepass"),
        "aria": content.aria.encode("utf-8", "replace"),
        "text": content.text.encode("utf-8", "replace"),
    }


async def read_page(page: Page, *, with_picture: bool = True) -> PageSnapshot:
    """Read a settled page with its frames. Raises Playwright's Error if the page is gone."""
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
    return PageSnapshot(
        url=main["url"],
        title=main["title"],
        text=tidy("\n\n".join(texts)),
        html=_with_frames(main["html"], framed),
        aria=str(aria),
        png=await take_picture(page) if with_picture else b"",
        state=_joined(main["state"], framed),
        pdfs=tuple(dict.fromkeys(pdfs)),
    )


# Text nodes and fields, in open shadow roots too. Held by reference, so that the page itself gets no mark.
_PLACES = """() => {
  const roots = [document], found = [];
  for (let i = 0; i < roots.length; i++) {
    for (const e of roots[i].querySelectorAll("*")) {
      if (e.shadowRoot) roots.push(e.shadowRoot);
      if (e.localName === "textarea" || (e.localName === "input" && e.type !== "file")) found.push(e);
    }
    const walker = document.createTreeWalker(roots[i], NodeFilter.SHOW_TEXT);
    while (walker.nextNode())
      if (!/^(script|style|textarea)$/.test(walker.currentNode.parentElement?.localName)) found.push(walker.currentNode);
  }
  return found;
}"""
_READ = "(places) => places.map((p) => p.nodeType === 3 ? p.data : p.value)"
_WRITE = """(places, texts) => { for (const [i, text] of texts) {
  if (places[i].nodeType === 3) places[i].data = text; else places[i].value = text;
} }"""


class ViewRedactor:
    """A remover of a redactor's secrets from views. Without a redactor nothing changes."""

    def __init__(self, redactor: Redactor | None) -> None:
        self.redactor = redactor

    def text(self, text: str) -> str:
        """Return text with every learned secret replaced, in a URL also those that its own fields name."""
        if self.redactor is None:
            return text
        if text.startswith(("http://", "https://")) and not any(c.isspace() for c in text):
            return self.redactor.url(text)
        data = text.encode("utf-8", "surrogatepass")
        changed = self.redactor.body(data)
        return text if changed is data else changed.decode("utf-8", "surrogatepass")

    def json(self, value: Any) -> Any:
        """Return a JSON value with the secrets in its strings and names replaced."""
        if self.redactor is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.json(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(member) for member in value]
        return value

    def without_secrets(self, content: PageSnapshot) -> PageSnapshot:
        """Return a page's content without secrets, with `veiled` if a person could have read one.

        Links to PDFs stay as they are.
        """
        if self.redactor is None:
            return content
        text, aria, state = self.text(content.text), self.text(content.aria), self.json(content.state)
        return replace(
            content,
            url=self.text(content.url),
            title=self.text(content.title),
            text=text,
            html=self.text(content.html),
            aria=aria,
            state=state,
            redacted=(text, aria, state) != (content.text, content.aria, content.state),
        )

    async def look(self, page: Page, *, with_picture: bool = True) -> PageSnapshot:
        """Read a page as `read_page` does, without secrets.

        All answers that the page got must have passed the redactor before.
        """
        if self.redactor is None:
            return await read_page(page, with_picture=with_picture)
        content = self.without_secrets(await read_page(page, with_picture=False))
        return await self.with_picture(content, page) if with_picture else content

    async def with_picture(self, content: PageSnapshot, page: Page) -> PageSnapshot:
        """Return the content with a picture of the page, which must have rested since, without secrets."""
        if not content.redacted:
            return replace(content, png=await take_picture(page))
        async with AsyncExitStack() as stack:
            for frame in page.frames:
                await stack.enter_async_context(self._show_pseudonyms(frame))
            return replace(content, png=await take_picture(page))

    @asynccontextmanager
    async def _show_pseudonyms(self, frame: Frame) -> AsyncIterator[None]:
        """Let a frame show pseudonyms while the context is open."""
        try:
            places = await answered(frame.evaluate_handle(_PLACES))
            texts = await answered(places.evaluate(_READ))
            changed = [(i, text, self.text(text)) for i, text in enumerate(texts)]
            changed = [one for one in changed if one[1] != one[2]]
            await answered(places.evaluate(_WRITE, [[i, new] for i, _, new in changed]))
        except PlaywrightError:
            yield  # a frame that went away, or shows no document
            return
        try:
            yield
        finally:
            with contextlib.suppress(PlaywrightError):
                await answered(places.evaluate(_WRITE, [[i, old] for i, old, _ in changed]))
                await places.dispose()
