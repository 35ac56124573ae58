"""A page that has begun to go elsewhere is not taken for one that rests."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.settle import Traffic
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve
from tests.support.waiting import HANG

PAGE = """<!DOCTYPE html><title>Ways</title><a id=link href=/slow>slow</a><form action=/slow><button id=form>send</button></form>
<button id=script onclick="setTimeout(() => { location = '/slow' }, 200)">go</button><iframe srcdoc="<a href=/slow>in</a>"></iframe>
<a id=held href=/slow>held</a><a id=routed href=/routed>routed</a><a id=nothing href=/nothing>none</a>
<a id=saved href=/saved.csv download>save</a>
<script>held.onclick = (e) => e.preventDefault();
navigation.addEventListener("navigate", (e) => { if (e.destination.url.endsWith("/routed")) e.intercept({ handler: async () => {
  await new Promise((done) => setTimeout(done, 100)); } }); });</script>"""


told = threading.Event()  # Traffic was, of the page's request


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path.startswith("/slow"):
        assert told.wait(HANG)
        return 200, {"Content-Type": "text/html"}, b"arrived"
    if path == "/nothing":
        return 204, {}, b""
    if path == "/saved.csv":
        return 200, {"Content-Type": "text/csv"}, b"a,b"
    return 200, {"Content-Type": "text/html"}, PAGE.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


class Unaware(Traffic):
    """Told of requests half a second after they began, once `late` is set."""

    late = False

    def _begin(self, request: Any) -> None:
        if not self.late:
            super()._begin(request)
        else:
            asyncio.get_running_loop().call_later(0.5, self._tell, request)

    def _tell(self, request: Any) -> None:
        super()._begin(request)
        told.set()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["link", "form", "script", "frame"])
def test_a_page_that_is_being_left_is_waited_for_however_late_its_request_is_told(
    browser: Browsing, site: str, how: str
) -> None:
    async def go() -> tuple[str, Any]:
        told.clear()
        made = await browser.driver()
        traffic = Unaware(made.context)
        driver = Driver(made.context, traffic=traffic)
        await driver.open(f"{site}/leaving")
        traffic.late = True
        step = {"css": "a", "frame": "iframe"} if how == "frame" else {"css": f"#{how}"}
        calm = await driver.perform({"click": step})
        said = await (driver.page.frames[1] if how == "frame" else driver.page).inner_text("body")
        await driver.context.close()
        return said, calm

    said, calm = browser.run(go())
    assert said == "arrived"
    assert calm.quiet


@pytest.mark.slow
def test_a_page_that_stays_where_it_is_rests(browser: Browsing, site: str) -> None:
    async def go() -> list[Any]:
        driver = await browser.driver()
        await driver.open(f"{site}/leaving")
        calms = [
            await driver.perform({"click": {"css": name}})
            for name in ("#held", "#routed", "#nothing", "#nothing", "#saved", "#held")
        ]
        calms.append(driver.page.url)
        await driver.context.close()
        return calms

    *calms, url = browser.run(go())
    assert all(calm.quiet and calm.rounds < 200 for calm in calms)  # none was waited out
    assert url == f"{site}/routed"
