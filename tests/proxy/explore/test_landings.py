"""What a client holds is the same at each visit where the site gives the same."""

from __future__ import annotations

import pytest

from stillweb.proxy.explore.explorer import held_by
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = (
        "<title>P</title><script>sessionStorage.seen = 1; document.cookie = 'mine=1; max-age=600';</script>"
    )
    kind = path.removeprefix("/")
    return 200, {"Content-Type": "text/html", "Set-Cookie": f"kind={kind}; Max-Age=3600"}, page.encode()


@pytest.mark.slow
def test_a_cookie_that_lasts_is_the_same_at_each_visit(browser: Browsing) -> None:
    async def visit(url: str) -> str:
        driver = await browser.driver()
        await driver.open(url)
        held = await held_by(driver)
        await driver.context.close()
        return held

    with serve(handle) as base:
        one, again, other = (browser.run(visit(f"{base}/{kind}")) for kind in ("a", "a", "b"))
    assert one == again
    assert one != other
