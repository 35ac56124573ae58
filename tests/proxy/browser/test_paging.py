"""The next page is found where pages have numbers only, and none where it can't be told."""

from __future__ import annotations

import pytest

from stillweb.proxy.browser.driver import next_page_of
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

LINKS = "<a href='?p=1'>1</a> <a href='?p=2'>2</a> <a href='?p=3'>3</a>"


def shown(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    return 200, {"Content-Type": "text/html"}, b"<title>Mills</title>"


@pytest.mark.parametrize(
    ("page", "leads"),
    [
        ("<p class=paginator><span class=this-page>1</span> <a href='?p=2'>2</a> <a href='?p=3'>3</a> 45 mills", "?p=2"),
        (f"<nav aria-label=Pagination>{LINKS}</nav>", None),
        (f"<ul class=pagination>{LINKS.replace('>2', ' aria-current=page>2')}</ul>", "?p=3"),
        ("<ul class=pagination><li><a href='?p=1'>1</a><li class=active><a href='?p=2'>2</a><li><a href='?p=3'>3</a></ul>", "?p=3"),
        ("<p class=pager><a href='?p=1'>1</a> <b>2</b>", None),  # the last
        (f"<p>{LINKS}<b>4</b> <a href='?p=5'>5</a>", None),  # numbers, of whatever
        ("<a href='?n'>Next</a><p class=pager><b>1</b> <a href='?p=2'>2</a>", "?n"),
    ],
)  # fmt: skip
def test_the_page_after_the_one_that_is_shown(browser: Browsing, page: str, leads: str | None) -> None:
    async def find(url: str) -> str | None:
        driver = await browser.driver()
        try:
            await driver.open(url)
            await driver.page.set_content(page)
            found = await next_page_of(driver.page)
            return None if found is None else await found.get_attribute("href")
        finally:
            await driver.context.close()

    with serve(shown) as base:
        assert browser.run(find(base)) == leads
