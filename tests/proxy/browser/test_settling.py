"""Settling does not hang on when the browser tells of what a page asked for, nor on floods of requests."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser import driver, errors, settle
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.settle import SettleTimeouts, Traffic
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

LATE = 0.3  # s by which the browser is late, as on a busy machine
# A page that draws without end rests when three seconds of its time have gone since it asked for something.
PAGES = {
    "/fetch": "fetch('/file').then((r) => r.text())",
    "/xhr": "{ const x = new XMLHttpRequest(); x.open('GET', '/file'); x.send(); }",
}
PAGE = """<!DOCTYPE html><title>Draws</title><p>drawing</p><script>
const draw = () => requestAnimationFrame(draw); draw(); setTimeout(() => { ASK }, 500);</script>"""


UNREAD = {
    "/post": "fetch('/beacon', {method: 'POST', body: 'x'})",
    "/refused": "fetch('/beacon', {method: 'POST'}).then((r) => { if (!r.ok) throw r.status })",
    "/looked-at": "fetch('/beacon').then((r) => { document.title = r.status })",
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/file":
        return 200, {"Content-Type": "text/plain"}, b"file"
    if path == "/beacon":
        return (
            200,
            {"Content-Type": "application/json", "Cache-Control": "no-store"},
            b'{"seen": true}' * 1000,
        )
    if path == "/closes":
        return 200, {"Content-Type": "text/html"}, b"<h1>Signed in</h1><script>close()</script>"
    if path == "/opens":
        return 200, {"Content-Type": "text/html"}, b"<p>page</p><script>open('/closes')</script>"
    if path in UNREAD:
        return 200, {"Content-Type": "text/html"}, f"<p>page</p><script>{UNREAD[path]}</script>".encode()
    return 200, {"Content-Type": "text/html"}, PAGE.replace("ASK", PAGES[path]).encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_a_late_word_of_a_request_gives_a_page_no_more_time(
    browser: Browsing, site: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def moved() -> float:
        driver = await browser.driver()
        _, calm = await driver.open(site + path)
        await driver.context.close()
        assert calm.quiet
        return calm.moved

    real = Traffic._begin

    def late(self: Traffic, request: Any) -> None:
        if request.url.endswith("/file"):
            asyncio.get_running_loop().call_later(LATE, counted, self, request)
        else:
            real(self, request)

    def counted(self: Traffic, request: Any) -> None:
        real(self, request)
        self._end(request)

    soon = browser.run(moved())
    monkeypatch.setattr(Traffic, "_begin", late)
    assert browser.run(moved()) == soon


def unquiet(browser: Browsing, site: str, *paths: str) -> list[str]:
    """Open pages one after the other, and return those that are still waited for after 10 s."""

    async def opened() -> list[str]:
        driver = await browser.driver(SettleTimeouts(stuck=60, real=10))
        return [path for path in paths if not (await driver.open(site + path))[1].quiet]

    return browser.run(opened())


def test_a_page_does_not_wait_for_a_body_that_no_script_reads(browser: Browsing, site: str) -> None:
    """Chromium never tells that such a body has ended, if it must not be stored."""
    assert unquiet(browser, site, *UNREAD) == []


def test_a_page_does_not_wait_for_a_tab_that_has_closed_itself(browser: Browsing, site: str) -> None:
    assert unquiet(browser, site, "/opens") == []


WORDS = "<title>Loops</title><h1>A page that does the same again and again</h1><p>It says so, lest it be taken for empty.</p>"
LOOPS = {
    "/requests": "for (let n = 0; n < 60; n++) fetch('/data?' + n);",
    "/downloads": "const a = Object.assign(document.createElement('a'), {href: 'data:text/plain,x', download: 'x.txt'});"
    " for (let n = 0; n < 20; n++) setTimeout(() => a.click(), n * 20);",
    "/dialogs": "addEventListener('load', () => { for (let n = 0; n < 30; n++) alert(n); });",
    "/endless": "addEventListener('load', () => { for (;;) alert('again'); });",
}


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = LOOPS.get(path)
    return 200, {"Content-Type": "text/html"}, f"{WORDS}<script>{page}</script>".encode() if page else b"x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("/requests", "sends too many requests: the first "),
        ("/downloads", "starts too many downloads: the first "),
        ("/dialogs", "more dialogs: left out"),
        ("/endless", "one of its scripts is blocking it"),
    ],
)
def test_a_page_that_loops_is_recorded_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, told: str
) -> None:
    monkeypatch.setattr(settle, "MOST_REQUESTS", 40)
    monkeypatch.setattr(driver, "MOST_DOWNLOADS", 5)
    monkeypatch.setattr(driver, "MOST_DIALOGS", 10)
    monkeypatch.setattr(errors, "SECONDS", 1 if page == "/endless" else 20)
    patience = SettleTimeouts(real=2) if page == "/endless" else SettleTimeouts()
    with serve(answer) as site, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        [result] = Fetcher(recorder, writer, patience=patience).fetch([site + page])
    said = [*result.notes, str(result.error)]
    with Snapshot.open(tmp_path / "s") as snapshot:
        said += [(snapshot.resource("pageinfo", view.address) or b"").decode() for view in snapshot.views()]
    assert any(told in one for one in said)
