"""No page makes the browser start a program of the machine: Chromium hands addresses such as `mailto:` to xdg-utils."""

import asyncio
import os
from pathlib import Path

import pytest

from stillweb.proxy.browser import browser
from stillweb.proxy.browser.browser import BrowserHost
from stillweb.snapshots.profile import Profile
from tests.proxy.sites import Answer, forward, serve
from tests.support.waiting import until

pytestmark = [pytest.mark.whole_browser, pytest.mark.slow]


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    who = path.partition("?")[2]
    if path.startswith("/moved"):
        return 302, {"Location": f"mailto:moved@{who}"}, b""
    page = f"<a id=link href='mailto:link@{who}?attach=/etc/passwd'>write</a> <a id=moved href='/moved?{who}'>moved</a>"
    return 200, {"Content-Type": "text/html"}, f"{page}<iframe src='mailto:frame@{who}'></iframe>".encode()


def test_no_address_in_a_page_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser with the machine's own PATH does start one, after the browser that must not."""
    log = tmp_path / "started"
    log.touch()
    (tmp_path / "xdg-email").write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    (tmp_path / "xdg-email").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    async def visit(site: str, proxy: str, who: str) -> None:
        async with BrowserHost() as host:
            page = await (await host.context(who, proxy, Profile())).new_page()
            for way in ("#link", "#moved"):
                await page.goto(f"{site}/?{who}")
                await page.click(way)
            if who == "plain":
                assert await asyncio.to_thread(until, log.read_text)

    with serve(handle) as site, forward() as proxy:
        asyncio.run(visit(site, proxy.proxy_url("s"), "ours"))
        monkeypatch.setattr(browser, "environment", lambda folder: dict(os.environ))
        asyncio.run(visit(site, proxy.proxy_url("s"), "plain"))
    assert "@plain" in log.read_text()
    assert "@ours" not in log.read_text()
