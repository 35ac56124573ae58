"""Browser contexts and drivers that are shared: none is lost to the next user."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from stillweb.proxy.browser.browser import BrowserHost, ContextPool, complete, find_browser
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from tests.support.fork_server import DRIVER
from tests.support.pages import ARGUMENTS
from tests.support.shared_driver import SharedDriver
from tests.support.waiting import until


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedDriver]:
    monkeypatch.setenv(DRIVER, "")  # restored after the test
    driver = SharedDriver()
    driver.lend()
    yield driver
    driver.close()


def processes(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue  # gone meanwhile
    return found


def start(playwright: object) -> Browser:
    return playwright.chromium.launch(executable_path=str(find_browser()), args=ARGUMENTS)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_driver_that_was_killed_is_replaced(driver: SharedDriver) -> None:
    assert driver.process is not None
    first = driver.process.pid
    os.kill(first, signal.SIGKILL)
    driver.process.wait()
    driver.lend()
    assert driver.process.pid != first
    with sync_playwright() as playwright, start(playwright) as browser:
        assert browser.version


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_browsers_end_with_their_client_and_have_its_environment(driver: SharedDriver, killed: bool) -> None:
    mark = f"STILLWEB_TEST_OF_DRIVER={killed}-{os.getpid()}"
    program = (
        "import sys; from tests.support.shared_driver import use_shared_drivers; use_shared_drivers()\n"
        "from playwright.sync_api import sync_playwright\n"
        "with sync_playwright() as playwright:\n"
        "    playwright.chromium.launch(executable_path=sys.argv[1], args=sys.argv[2:])\n"
        "    print('runs', flush=True)\n"
        "    input()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", program, find_browser(), *ARGUMENTS],
        env=os.environ | dict([mark.split("=")]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    with client:
        assert client.stdout.readline() == b"runs\n"
        assert len(processes(mark)) > 1
        if killed:
            client.kill()
        else:
            client.stdin.write(b"\n")
            client.stdin.flush()
    assert until(lambda: not processes(mark))


SITE = "http://spare.test/"
PAGE = b"""<!DOCTYPE html><title>x</title><p id=p></p><script>
p.textContent = [Date.now(), Math.random(), crypto.randomUUID(), performance.now(), performance.timeOrigin, history.length,
  document.cookie, localStorage.x, document.lastModified, innerWidth, document.visibilityState].join(" ");
document.cookie = "a=b"; localStorage.x = 1;</script>"""


@pytest.mark.slow
def test_a_spare_is_as_any_other(tmp_path: Path) -> None:
    profile = complete(Profile())
    with Writer.open(tmp_path / "s", profile=profile) as writer:
        record(writer, SITE, PAGE, headers=(("Content-Type", "text/html"),))

    async def seen(context: Any) -> str:
        (page,) = context.pages
        driver = Driver(context, page=page)
        await driver.open_start(SITE)
        text = str(await page.inner_text("p"))
        await context.close()
        return text

    async def go(gateway: Gateway) -> list[str]:
        async with BrowserHost(ca=gateway.ca_path) as host:
            spares = ContextPool(host)
            try:
                found = [await seen(await spares.take("one", gateway, profile))]
                for name in ("two", "three"):
                    (made,) = spares._made.values()
                    _, ready = await made
                    context = await spares.take(name, gateway, profile)
                    assert context is ready
                    found.append(await seen(context))
                (made,) = spares._made.values()
                _, lost = await made
                await lost.close()  # as when the browser has ended
                found.append(await seen(await spares.take("four", gateway, profile)))
            finally:
                await spares.close()
            return found

    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        found = asyncio.run(go(gateway))
        assert sorted(gateway.stats.sessions) == ["four", "one", "three", "two"]
        entries = gateway.ledger.entries()
    assert len(set(found)) == 1
    assert {entry["session"] for entry in entries} == {"one", "two", "three", "four"}
    assert {entry["verdict"] for entry in entries} == {"exact"}
