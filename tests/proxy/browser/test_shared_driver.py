"""The driver that tests share is none that one test can take from the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from stillweb.proxy.browser.browser import find_browser
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
