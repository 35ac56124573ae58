"""Redaction of views: secrets that the recorder learned are replaced in the content of a page.

The picture is taken while the page shows the pseudonyms, as it will in replay, where the answers hold them.
Secrets drawn by a script (canvas) or shown in an image are out of reach.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.answered import answered
from stillweb.proxy.browser.sight import Sight, look_at, picture

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

    from stillweb.snapshots.secrets.redact import Redactor

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


class Veil:
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

    def sight(self, sight: Sight) -> Sight:
        """Return a page's content without secrets, with `veiled` if a person could have read one.

        Links to PDFs stay as they are.
        """
        if self.redactor is None:
            return sight
        text, aria, state = self.text(sight.text), self.text(sight.aria), self.json(sight.state)
        return replace(
            sight,
            url=self.text(sight.url),
            title=self.text(sight.title),
            text=text,
            html=self.text(sight.html),
            aria=aria,
            state=state,
            veiled=(text, aria, state) != (sight.text, sight.aria, sight.state),
        )

    async def look(self, page: Page, *, with_picture: bool = True) -> Sight:
        """Read a page as `look_at` does, without secrets.

        All answers that the page got must have passed the redactor before.
        """
        if self.redactor is None:
            return await look_at(page, with_picture=with_picture)
        sight = self.sight(await look_at(page, with_picture=False))
        return await self.drawn(sight, page) if with_picture else sight

    async def drawn(self, sight: Sight, page: Page) -> Sight:
        """Return the content with a picture of the page, which must have rested since, without secrets."""
        if not sight.veiled:
            return replace(sight, png=await picture(page))
        async with AsyncExitStack() as stack:
            for frame in page.frames:
                await stack.enter_async_context(self._over(frame))
            return replace(sight, png=await picture(page))

    @asynccontextmanager
    async def _over(self, frame: Frame) -> AsyncIterator[None]:
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
