"""Faults and recorded pace as Chromium meets them: what a page shows, and what the ledger says."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Error, Page

import stillweb
from stillweb.proxy.browser.browser import BrowserHost
from stillweb.snapshots.profile import Profile
from tests.proxy.browsing import Browsing
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Asked, Origin

HTML = (("Content-Type", "text/html"),)
WORDS = b"<p>" + b"some words of a page " * 200
URL = "https://a.test/page"
SHOWN = """async () => {
    try {
        const answer = await fetch('/data');
        const text = await answer.text();
        document.body.append(`data ${answer.status} ${text.length}`);
    } catch (error) { document.body.append('data failed'); }
    document.title = 'done';
}"""
SEEN = """() => {
    const [page] = performance.getEntriesByType('navigation');
    return page.responseStart - page.requestStart;
}"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = Site(path := tmp_path_factory.mktemp("faults") / "s")
    site.add(URL, b"<title>A page</title>" + WORDS, headers=HTML)
    site.add("https://a.test/login", b"<title>Log in</title>" + WORDS, headers=HTML)
    for text in (b"price 10", b"price 20"):
        site.add("https://a.test/price", text, headers=HTML)
    site.add("https://a.test/data", b"d" * 3000, headers=(("Content-Type", "text/plain"),))
    with site.open():
        return path


@contextmanager
def opened(chromium: Browsing, snapshot: Path, **settings: Any) -> Iterator[tuple[Page, stillweb.Replay]]:
    with stillweb.replay(snapshot, **settings) as web:
        gateway = web.gateway
        chromium.sessions += 1
        session = f"f{chromium.sessions}"
        at = gateway.proxy_url(session)
        context = chromium.run(chromium.host.context(session, at, Profile(), gateway.ca_path))
        try:
            yield chromium.run(context.new_page()), web
        finally:
            chromium.run(context.close())


def verdicts(web: stillweb.Replay, url: str) -> list[str]:
    return [entry["verdict"] for entry in web.ledger if entry["url"] == url]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "title"),
    [
        ({"delay": 0.5}, 200, "A page"),
        ({"pace": 8000}, 200, "A page"),
        ({"status": 429, "retry_after": 7}, 429, ""),
        ({"status": 503}, 503, ""),
        ({"login": "/login"}, 200, "Log in"),
        ({"login": True}, 401, ""),
        ({"captcha": True}, 403, "human"),
        ({"captcha": 200}, 200, "human"),
    ],
)
def test_a_page_under_a_fault(
    chromium: Browsing, snapshot: Path, fault: dict[str, Any], status: int, title: str
) -> None:
    faults = {"faults": [{"id": "f", "url": URL, "nth": 1, **fault}]}
    with opened(chromium, snapshot, faults=faults) as (page, web):
        began = time.monotonic()
        answer = chromium.run(page.goto(URL))
        assert answer is not None
        assert answer.status == status
        if {"delay", "pace"} & fault.keys():
            assert time.monotonic() - began > 0.4
        assert title.lower() in (chromium.run(page.title()) + chromium.run(page.inner_text("body"))).lower()
        chromium.run(page.goto(URL))  # the first request alone
        assert chromium.run(page.title()) == "A page"
        assert verdicts(web, URL) == ["fault:f", "exact"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"reset": True}, {"cut": 100}])
def test_a_broken_answer_fails_in_the_page(chromium: Browsing, snapshot: Path, fault: dict[str, Any]) -> None:
    """Chromium shows what it has of a document that is cut, and sends a request again whose connection was reset."""
    faults = {"faults": [{"id": "f", "url": "https://a.test/data", **fault}]}
    with opened(chromium, snapshot, faults=faults) as (page, web):
        chromium.run(page.goto(URL))
        chromium.run(page.evaluate(SHOWN))
        assert "data failed" in chromium.run(page.inner_text("body"))
        assert set(verdicts(web, "https://a.test/data")) == {"fault:f"}
    faults["faults"][0]["url"] = URL
    with opened(chromium, snapshot, faults=faults) as (page, web):
        if "reset" in fault:
            with pytest.raises(Error, match="ERR_"):
                chromium.run(page.goto(URL))
        assert set(verdicts(web, URL)) <= {"fault:f"}


@pytest.mark.slow
def test_a_stale_page_shows_its_older_self(chromium: Browsing, snapshot: Path) -> None:
    url = "https://a.test/price"
    faults = {"faults": [{"id": "f", "url": url, "stale": True, "nth": "2-"}]}
    with opened(chromium, snapshot, faults=faults) as (page, web):
        shown = []
        for _ in range(2):
            chromium.run(page.goto(url))
            shown.append(chromium.run(page.inner_text("body")))
        assert shown == ["price 10", "price 10"]
        assert verdicts(web, url) == ["exact", "fault:f"]


async def waited(host: BrowserHost, url: str, web: stillweb.Replay) -> float:
    """Milliseconds from a page's request to the first byte of its answer, as the page sees them."""
    ours = await host.context("timing", web.gateway.proxy_url("timing"), Profile(), web.gateway.ca_path)
    assert ours.browser is not None
    own = await ours.browser.new_context(**web.playwright())
    try:
        page = await own.new_page()
        await page.goto(url)
        return float(await page.evaluate(SEEN))
    finally:
        await own.close()
        await ours.close()


@pytest.mark.slow
@pytest.mark.parametrize(("timing", "factor"), [("none", 0), ("recorded", 1), ("x2", 2)])
def test_a_page_comes_at_the_recorded_pace(
    chromium: Browsing, tmp_path: Path, timing: str, factor: int
) -> None:
    """By the clock of a page in a context of Playwright's own; that of our contexts stands still."""

    async def slow(asked: Asked) -> Answer:
        await asyncio.sleep(0.4)
        return Answer(headers=list(HTML), body=b"<title>Slow</title>" + WORDS)

    with Origin(slow) as origin, stillweb.record(tmp_path / "s") as recording:
        url = f"http://127.0.0.1:{origin.port}/"
        assert recording.run(["curl", "-s", "-o", "/dev/null", url]) == 0
    with stillweb.replay(tmp_path / "s", timing=timing) as web:
        first = chromium.run(waited(chromium.host, url, web))
    assert first >= 0.9 * 400 * factor
    if not factor:
        assert first < 400
