"""Frames and windows that somebody looked at before they had their document: that is frozen as any other."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

FRAME = """<!DOCTYPE html><title>Frame</title><style>@keyframes grow { from { width: 0 } to { width: 300px } }
#grow { animation: grow .4s linear; height: 3px }</style><div id=grow></div><p id=said></p><div style="height: 900px"></div><p id=low>low</p>
<script>var seen = [["chance", Math.random(), Math.random()]]; const note = (...x) => { seen.push([...x, performance.now()]); };
grow.onanimationend = () => note("ended");
setInterval(() => {}, 5); // time would go on
setTimeout(() => { const s = document.createElement("script"); s.onload = () => note("loaded"); s.src = "/slow.js"; document.body.append(s); }, 10);
setTimeout(() => { low.scrollIntoView(); }, 20); onscroll = () => note("scrolled");
new IntersectionObserver((es) => note("seen", es[0].isIntersecting)).observe(low);
const box = document.createElement("p").attachShadow({mode: "closed"});
</script>"""
TOUCH = "<script>for (let n = 0; n < frames.length; n++) frames[n].name;</script>"
PAGES = {
    "/alone": "<iframe src=/frame></iframe>",
    "/touched": f"<iframe src=/frame></iframe>{TOUCH}",
    "/sibling": "<iframe src=/frame></iframe><iframe srcdoc='<p>a frame that asks for its place'></iframe>",
    "/doc": f"""<iframe srcdoc="{FRAME.replace("&", "&amp;").replace('"', "&quot;")}"></iframe>{TOUCH}""",
    "/window": "<script>var w = open('/frame')</script>",
    "/frame": FRAME,
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/slow.js":
        time.sleep(0.2)
        return 200, {"Content-Type": "text/javascript"}, b""
    if path == "/frame":
        time.sleep(0.1)  # long enough to be looked at
    return 200, {"Content-Type": "text/html"}, f"<!DOCTYPE html><title>Page</title>{PAGES[path]}".encode()


@pytest.fixture(scope="module")
def said(chromium: Browsing) -> Iterator[dict[str, list[Any]]]:
    async def look(url: str) -> dict[str, list[Any]]:
        driver, seen = await chromium.driver(), {}
        for path in PAGES:
            await driver.open(url + path)
            seen[path] = await driver.page.evaluate("() => (globalThis.seen || frames[0].seen)")
        await driver.context.close()
        return seen

    with serve(handle) as url:
        yield chromium.run(look(url))


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_its_time_is_the_page_s(said: dict[str, list[Any]], path: str) -> None:
    found = said[path]
    assert [one for one in found if one[0] == "ended"] == [["ended", 400]]
    assert [one for one in found if one[0] == "loaded"] == [["loaded", 10]]
    assert [one for one in found if one[0] == "scrolled"] == [["scrolled", 20]]
    assert [one for one in found if one[0] == "seen"][:2] == [["seen", False, 0], ["seen", True, 20]]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/touched", "/sibling", "/window", "/frame"])
def test_its_chance_is_that_of_its_address(said: dict[str, list[Any]], path: str) -> None:
    assert said[path][0] == said["/alone"][0]
