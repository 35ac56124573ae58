"""A page that refreshes itself does so when its own clock says, whatever the machine's does."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser.freeze import pass_time
from stillweb.proxy.browser.settle import SettleTimeouts
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve
from tests.support.waiting import HANG

PAGE = """<!DOCTYPE html><title>First</title><meta http-equiv=Refresh content="{content}"><script>
let stopped = 0; navigation.addEventListener("navigate", (e) => {{ stopped += e.defaultPrevented; }});
</script><a href="/other">Other</a><button onclick="location.href = '/other'">Go</button><form action="/other"><button>Send</button></form>"""


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path.startswith("/other"):
        return 200, {"Content-Type": "text/html"}, b"<title>Other</title>"
    content = path.removeprefix("/").replace("_", " ").replace("!", "/other").replace("~", "'")
    return 200, {"Content-Type": "text/html"}, PAGE.format(content=content).encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


def browse(browser: Browsing, url: str, act: Any, patience: SettleTimeouts | None = None) -> Any:
    async def go() -> Any:
        driver = await browser.driver(patience)
        await driver.open(url)
        try:
            return await act(driver)
        finally:
            await driver.context.close()

    return browser.run(go())


async def title(driver: Any) -> str:
    return str(await driver.page.title())


def test_a_soon_one_is_followed(browser: Browsing, site: str) -> None:
    async def go() -> dict[str, str]:
        driver, led = await browser.driver(), {}
        for content in ("0;url=!", "1;!", "2_;_URL_=_~!~", "1.5,url=!"):
            await driver.open(f"{site}/{content}")
            led[content] = await title(driver)
        return led

    led = browser.run(go())
    assert led == dict.fromkeys(led, "Other")


def test_a_later_one_waits_for_the_pages_clock_and_not_for_the_machines(browser: Browsing, site: str) -> None:
    async def act(driver: Any) -> tuple[str, str, str]:
        limit = time.monotonic() + HANG
        while not await driver.page.evaluate("stopped") and time.monotonic() < limit:
            await asyncio.sleep(0.05)
        left = await title(driver)
        await pass_time(driver.page, driver.traffic, 0.4, driver.patience)
        before = await title(driver)
        await pass_time(driver.page, driver.traffic, 0.7, driver.patience)
        return left, before, await title(driver)

    patience = SettleTimeouts(virtual=100)
    assert browse(browser, f"{site}/1;url=!", act, patience) == ("First", "First", "Other")


def test_the_same_way_is_free_to_others(browser: Browsing, site: str) -> None:
    async def go() -> dict[str, str]:
        driver, led = await browser.driver(), {}
        for css in ("a", "body > button", "form > button"):
            await driver.open(f"{site}/50;url=!")
            await driver.perform({"click": {"css": css}})
            led[css] = await title(driver)
        return led

    led = browser.run(go())
    assert led == dict.fromkeys(led, "Other")
