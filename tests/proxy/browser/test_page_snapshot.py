"""The visible content of a page, read from the browser, shadow trees included."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from playwright.async_api import Page

from stillweb.proxy.browser.page_snapshot import PageSnapshot, read_page, state_of
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

INNER = "<style>q{color:blue}</style><div>deep <style>k{}</style>down</div>"
OUTER = (
    "<style>p{color:red}</style>loose 1<p>para <slot name=n>unused</slot></p><slot></slot>"
    "<slot name=empty>its own</slot><div style='display:none'>hidden</div><x-inner></x-inner>"
)
PAGE = f"""<!doctype html><title>Trees</title><p>page 1</p>
<x-outer><span>slotted</span><b slot=n>named</b><i slot=none>nobody's</i></x-outer>
<x-plain style="display:contents"></x-plain><div hidden><x-gone></x-gone></div>
<script>
const tree = (host, html) => {{ const r = host.attachShadow({{ mode: "open" }}); r.innerHTML = html; return r; }};
const find = (root, name) => root.querySelector(name);
tree(find(tree(find(document, "x-outer"), {OUTER!r}), "x-inner"), {INNER!r});
tree(find(document, "x-plain"), "<p>1</p>");
tree(find(document, "x-gone"), "<p>not drawn</p>");
</script>"""


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    return 200, {"Content-Type": "text/html"}, PAGE.encode()


def test_of_shadow_trees_all_that_is_drawn_is_seen_and_nothing_else(browser: Browsing) -> None:
    async def look(base: str) -> PageSnapshot:
        driver = await browser.driver()
        await driver.open(f"{base}/")
        return await read_page(driver.page, with_picture=False)

    with serve(answer) as base:
        sight = browser.run(look(base))
    assert " ".join(sight.text.split()) == "page 1 slottednamed loose 1 para its own 1 deep down"


SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90"><title>Mill</title><text y="20">It turns</text></svg>"""


# Media type, document, text and accessibility tree of pages without a body, the last without a root.
BODILESS = [
    ("image/svg+xml", SVG, "MillIt turns", '- img "Mill":\n  - generic: It turns'),
    ("text/html", "<p>here<script>onload = () => document.body.remove()</script>", "", "- document"),
    ("text/html", "<p>here<script>document.documentElement.remove()</script>", "", ""),
]


def test_documents_without_a_body_are_seen(browser: Browsing) -> None:
    async def look(base: str) -> list[PageSnapshot]:
        driver, seen = await browser.driver(), []
        for number in range(len(BODILESS)):
            await driver.open(f"{base}/{number}")
            seen.append(await read_page(driver.page))
        return seen

    def bodiless(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        media, page, *_ = BODILESS[int(path[1:])]
        return 200, {"Content-Type": media}, page.encode()

    with serve(bodiless) as base:
        seen = browser.run(look(base))
    assert [(sight.text, sight.aria) for sight in seen] == [(text, aria) for *_, text, aria in BODILESS]
    assert [sight.png.startswith(b"\x89PNG") for sight in seen] == [True, True, False]


@dataclass
class Shown:
    """A page or frame as Playwright gives it, with one field."""

    url: str
    field: str
    frames: tuple[Shown, ...] = ()

    async def evaluate(self, script: str, only: str | None = None) -> dict[str, Any]:
        return {"state": {"fields": [self.field]}}


def test_the_buttons_of_the_pdf_viewer_are_no_state_of_the_page() -> None:
    viewer = Shown("chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/index.html", "Zoom level")
    page = Shown("http://a.test/", "Name", (Shown("", ""), viewer, Shown("http://a.test/inner", "Street")))
    assert asyncio.run(state_of(cast(Page, page))) == {"fields": ["Name", "Street"]}
