"""Observers of a page are told when it rests: the number of frames drawn before depends on the machine."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

SLOW = 0.25  # s that an answer takes: many frames are drawn meanwhile
PAGE = """<!DOCTYPE html><title>Watches</title><style>div { width: 10px; height: 10px }</style>
<div id=above></div><div id=box></div><div id=other></div><div id=turn></div><div id=low></div><div id=later></div><script>
const seen = window.seen = [], note = (...x) => seen.push([...x, performance.now()]), slow = () => fetch("/slow").then((r) => r.text());
const sized = new ResizeObserver((entries, self) => note("sized", ...entries.map((e) => [e.target.id, e.contentRect.width]), self === sized));
const seenBy = new IntersectionObserver(function (entries) { note("in sight", ...entries.map((e) =>
  [e.target.id, e.isIntersecting, e.boundingClientRect.y - low.getBoundingClientRect().y, e.time]), this === seenBy); });
class Own extends ResizeObserver { constructor() { super((entries) => note("own", entries.length)); } }
const own = new Own(), taking = new IntersectionObserver(() => note("taken all the same")), ended = new ResizeObserver(() => note("ended"));
sized.observe(other); sized.observe(box); sized.observe(turn); seenBy.observe(low); own.observe(box, {box: "border-box"});
taking.observe(later); ended.observe(box);
const grow = (e, width) => { e.style.width = `${width}px`; };
(async () => {
  await slow(); grow(box, 50); grow(turn, 70); above.style.height = "200px";
  await slow(); grow(box, 80); grow(turn, 10); above.style.height = "300px";
  await slow(); grow(box, 90); turn.style.display = "none"; note("records", ...taking.takeRecords().map((e) => e.target.id)); taking.disconnect(); ended.disconnect();
})();
setTimeout(async () => { grow(other, 30); await slow(); grow(other, 20); await slow(); grow(other, 10); }, 100);
setTimeout(() => { grow(other, 40); sized.unobserve(box); grow(box, 1); own.unobserve(box); }, 200);
setTimeout(() => { above.style.height = "9000px"; low.style.marginTop = "100px"; }, 300);
try { new ResizeObserver(); } catch (e) { note("refused", e.name); }
note("looks", ResizeObserver.name, IntersectionObserver.length, sized instanceof ResizeObserver, own.constructor === Own, sized.constructor === ResizeObserver);
</script>"""
EXPECTED = [
    ["refused", "TypeError", 0],
    ["looks", "ResizeObserver", 1, True, True, True, 0],
    ["records", "later", 0],
    ["sized", ["other", 10], ["box", 90], ["turn", 0], True, 0],
    ["in sight", ["low", True, 0, 0], True, 0],
    ["own", 1, 0],
    ["sized", ["other", 40], True, 200],
    ["in sight", ["low", False, 0, 300], True, 300],
]


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/slow":
        time.sleep(SLOW)
        return 200, {"Content-Type": "text/plain"}, b"slow"
    inner = PAGE if path == "/page" else "<iframe src=/page width=700 height=700></iframe>"
    return 200, {"Content-Type": "text/html"}, inner.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/page", "/framed"])
def test_it_is_told_once_of_each_as_it_stands_when_the_page_rests(
    browser: Browsing, site: str, path: str
) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(site + path)
        seen = await driver.page.evaluate("() => globalThis.seen || frames[0].seen")
        await driver.context.close()
        return seen

    assert browser.run(go()) == EXPECTED
