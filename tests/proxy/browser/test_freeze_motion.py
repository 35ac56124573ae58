"""The browser's own animations stand still: a picture is the same, whenever it is taken."""

import pytest

from stillweb.proxy.browser.page_snapshot import take_picture
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

PAGES = {
    "marquee": "<marquee>news of today</marquee>",
    "marquee made later": "<div id=box></div><script>setTimeout(() => { box.innerHTML = '<marquee direction=up>news</marquee>'; }, 50)</script>",
    "marquee started": "<marquee id=m onmouseout='this.start()'>news</marquee><script>setTimeout(() => { m.start(); }, 50)</script>",
    "bar": "<progress></progress>",
    "bar in a shadow": "<p><template shadowrootmode=open><progress></progress></template></p>",
    "spinner in a shadow": """<p><template shadowrootmode=open><style>@keyframes turn { to { transform: rotate(1turn) } }
        div { animation: turn 1s linear infinite; width: 50px; height: 50px; background: linear-gradient(red, blue) }</style><div></div></template></p>""",
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = PAGES[path.removeprefix("/").replace("%20", " ")]
    return 200, {"Content-Type": "text/html"}, f"<!DOCTYPE html><title>Moves</title>{page}<p>words".encode()


@pytest.mark.slow
def test_pictures_are_the_same(browser: Browsing) -> None:
    async def look(site: str) -> dict[str, set[bytes]]:
        driver, pictures = await browser.driver(), {}
        for page in PAGES:
            await driver.open(f"{site}/{page}")
            pictures[page] = {await take_picture(driver.page) for _ in range(2)}
        await driver.context.close()
        return pictures

    with serve(handle) as site:
        one, other = (browser.run(look(site)) for _ in range(2))
    assert [page for page in PAGES if len(one[page] | other[page]) > 1] == []
