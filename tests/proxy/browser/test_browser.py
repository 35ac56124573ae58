"""Finding Chromium, and what a context looks like to a page."""

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import BrowserHost, complete, find_browser, proxy_settings, spki_hash
from stillweb.proxy.net.ca import Authority
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.profile import Profile
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve
from tests.support.waiting import STARTS


def program(path: Path, text: str = "exit 1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_where_a_browser_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    monkeypatch.delenv("STILLWEB_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(downloads))
    with pytest.raises(MissingCapability, match=r"playwright install chromium.*STILLWEB_BROWSER") as caught:
        find_browser()
    assert caught.value.exit_code == 4
    old = program(downloads / "chromium-999" / "chrome-linux" / "chrome")
    new = program(downloads / "chromium-1100" / "chrome-linux" / "chrome")
    assert find_browser() == new
    new.unlink()
    assert find_browser() == old
    shell = program(tmp_path / "bin" / "chromium-headless-shell")
    assert find_browser() == shell
    on_path = program(tmp_path / "bin" / "google-chrome")
    assert find_browser() == on_path
    named = program(tmp_path / "mine")
    monkeypatch.setenv("STILLWEB_BROWSER", str(named))
    assert find_browser() == named
    monkeypatch.setenv("STILLWEB_BROWSER", str(tmp_path / "gone"))
    with pytest.raises(MissingCapability, match=r"STILLWEB_BROWSER: .*gone"):
        find_browser()


def test_a_browser_that_does_not_start(tmp_path: Path) -> None:
    broken = program(tmp_path / "broken")

    async def go() -> None:
        async with BrowserHost(executable=broken):
            raise AssertionError

    with pytest.raises(MissingCapability, match=f"{broken} can't be started: ") as caught:
        asyncio.run(go())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.whole_browser
def test_a_browser_that_is_given_up_while_it_begins_is_waited_for_and_closed() -> None:
    """Killed meanwhile, it leaves a directory of its own behind; closed in its first moments, Chromium now and then does, too."""

    async def go() -> None:
        host = BrowserHost()
        beginning = asyncio.ensure_future(host.__aenter__())
        end = asyncio.get_running_loop().time() + STARTS
        while (launching := host._launching) is None and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        assert launching is not None
        assert not launching.done()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        assert not launching.result().is_connected()

    asyncio.run(go())


def test_a_context_looks_like_the_profile(browser: Browsing) -> None:
    heard: dict[str, str] = {}

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        heard.update(headers)
        return 200, {"Content-Type": "text/html"}, b"<title>x</title>"

    profile = replace(
        Profile(), user_agent="Agent/1", viewport=(640, 480), locale="de-DE", timezone="Asia/Tokyo"
    )

    async def go(url: str) -> list[object]:
        driver = await browser.driver(profile=profile)
        await driver.open(url)
        seen: list[object] = await driver.page.evaluate(
            "() => [navigator.userAgent, innerWidth, innerHeight, navigator.language, new Date(0).getHours(),"
            " matchMedia('(prefers-reduced-motion: reduce)').matches, document.cookie]"
        )
        await driver.context.close()
        return seen

    with serve(handle) as url:
        assert browser.run(go(url)) == ["Agent/1", 640, 480, "de-DE", 9, True, ""]
    assert heard["user-agent"] == "Agent/1"
    assert heard["accept-language"].startswith("de-DE")
    assert browser.proxy.seen[-1][0] == f"s{browser.sessions}"
    assert {url for _, _, url in browser.proxy.seen} == {f"{url}/"}  # no favicon, no call home


def test_the_build_is_compared(browser: Browsing) -> None:
    browser.run(browser.host.start())
    build = browser.host.build
    assert build.startswith("Chromium ")
    full = complete(Profile(), build)
    assert full.browser == build
    assert "Headless" not in full.user_agent
    assert browser.host.difference(full) is None
    assert "recorded with Chromium 1.2" in (
        browser.host.difference(replace(full, browser="Chromium 1.2")) or ""
    )
    assert complete(full, "Chromium 9") == full


def test_proxy_addresses() -> None:
    settings = proxy_settings("http://a%20b:x@127.0.0.1:8080")
    assert settings == {
        "server": "http://127.0.0.1:8080", "bypass": "<-loopback>", "username": "a b", "password": "x",
    }  # fmt: skip
    assert proxy_settings("http://[::1]:8080")["server"] == "http://[::1]:8080"


def test_spki_is_of_the_authoritys_key(tmp_path: Path) -> None:
    authority = Authority.load_or_create(tmp_path)
    one = spki_hash(authority.certificate_path.read_bytes())
    assert len(one) == 44
    other = Authority.load_or_create(tmp_path / "other")
    assert spki_hash(other.certificate_path.read_bytes()) != one
    assert os.path.exists(authority.certificate_path)
