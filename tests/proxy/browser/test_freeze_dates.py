"""Objects with a date show the date that they were given, or the profile's, on whatever day."""

import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from stillweb.proxy.browser.driver import Driver
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><script>
const form = new FormData(); form.append("part", new Blob(["x"])); form.append("given", new File(["x"], "n", {lastModified: 5}));
const seen = {document: document.lastModified, again: document.lastModified, made: document.implementation.createHTMLDocument("").lastModified,
  part: form.get("part").lastModified - Date.now(), given: form.get("given").lastModified, file: new File([], "n").lastModified - Date.now(),
  kind: new File([], "n").constructor === File};
</script>"""
HOUR = 3600.0  # s before now; a page that a server made an hour ago


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    html = {"Content-Type": "text/html"}
    if path == "/now":
        html["Last-Modified"] = formatdate(time.time(), usegmt=True)
    if path.startswith("/at/"):
        html["Last-Modified"] = formatdate(float(path.removeprefix("/at/")), usegmt=True)
    return 200, html, PAGE.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


def look(browser: Browsing, *urls: str, replay: bool) -> list[dict[str, Any]]:
    async def go() -> list[dict[str, Any]]:
        proxy = browser.proxy.proxy_url("dates")
        context = await browser.host.context("dates", proxy, browser.profile, replay=replay)
        driver, seen = Driver(context), []
        for url in urls:
            await driver.open(url)
            seen.append(await driver.page.evaluate("seen"))
        await context.close()
        return seen

    return browser.run(go())


@pytest.mark.parametrize("replay", [False, True], ids=["recording", "replay"])
def test_it_is_the_answers_however_new_and_without_one_the_profiles(
    browser: Browsing, site: str, replay: bool
) -> None:
    start, at = "01/01/2025 00:00:00", int(time.time() - HOUR)
    none, given = look(browser, f"{site}/", f"{site}/at/{at}", replay=replay)
    assert none == {
        "document": start, "again": start, "made": start, "part": 0, "given": 5, "file": 0, "kind": True,
    }  # fmt: skip
    assert given["document"] == time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(at))


@pytest.mark.slow
def test_an_answer_of_this_very_second_is_told_from_none(browser: Browsing, site: str) -> None:
    before = time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime())
    (seen,) = look(browser, f"{site}/now", replay=False)
    after = time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime())
    assert before <= seen["document"] <= after
    assert seen["again"] == seen["document"]
