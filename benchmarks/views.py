"""Speed of views: recording against a plain Playwright script, `check`, and a browser session for an attempt.

    python -m benchmarks.views [--rounds 3]

Datasette on loopback. Recording and the plain script take the same views in turns, and the ratio is the median of the
turns. The plain script has one browser and one context, and for each view a new page, `goto` and `screenshot`: it stores
nothing, freezes nothing, and waits for nothing but the load. Beside it stand one that keeps its page, which is quicker
because no view begins afresh, and one with a context for each view, as ours. Bars: issue 4.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import click

from benchmarks.applications.servers import serving
from benchmarks.bench import NotRun, Row
from stillweb.harness.tools.browser import BrowserTool
from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.toolset import Toolset
from stillweb.proxy.browser.browser import BrowserHost, complete, find_browser
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import check_all
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

RECORDING, CHECK, READY = 0.7, 3.0, 100.0  # of the script's views a minute; views a second; milliseconds
PATHS = [
    f"/open/penguins?_sort={column}&species={species}"
    for species in ("Adelie", "Gentoo", "Chinstrap")
    for column in ("body_mass_g", "year", "island", "sex")
]


async def _plain(urls: list[str], each: str = "page") -> float:
    """Seconds that a plain script takes, its browser's start aside; `each` view has a new "page", "context" or "nothing"."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        context = await browser.new_context(viewport={"width": 1280, "height": 720})
        page = await context.new_page()
        began = time.perf_counter()
        for url in urls:
            if each == "context":
                await context.close()
                context = await browser.new_context(viewport={"width": 1280, "height": 720})
            elif each == "page":
                await page.close()
            if each != "nothing":
                page = await context.new_page()
            await page.goto(url)
            await page.screenshot()
        seconds = time.perf_counter() - began
        await browser.close()
    return seconds


async def _recorded(work: Path, authority: Authority, urls: list[str]) -> float:
    """Seconds that recording the same takes, its browser's start aside."""
    profile = complete(Profile())
    with Writer.open(work, profile=profile) as writer, Recorder(writer, authority=authority) as recorder:
        async with BrowserHost(ca=recorder.ca_path) as host:
            began = time.perf_counter()
            results = await Fetcher(recorder, writer, profile, host=host).fetch_all(urls)
            seconds = time.perf_counter() - began
    failed = [result.error for result in results if not result.ok]
    if failed:
        raise RuntimeError(f"not recorded: {failed[0]}")
    return seconds


async def _checked(snapshot: Snapshot, gateway: Gateway) -> tuple[float, float]:
    """Views a second of a check, without and with the browser's start."""
    began = time.perf_counter()
    async with BrowserHost(ca=gateway.ca_path) as host:
        report = await check_all(snapshot, gateway, host=host)
    whole = time.perf_counter() - began
    if not report.passed():
        raise RuntimeError(f"the check failed: {report.rows()}")
    return len(report.views) / report.seconds, len(report.views) / whole


async def _ready(snapshot: Snapshot, gateway: Gateway, times: int = 15) -> list[float]:
    """Milliseconds until a session has a context and a page, the browser running, other attempts at work before it."""
    url = next(view.url for view in snapshot.views())
    browser = SharedBrowser(ca=gateway.ca_path)
    toolset = Toolset(snapshot, ["browser"], gateway=gateway, browser=browser)
    found = []
    tool = toolset.tool("browser_navigate")
    assert isinstance(tool, BrowserTool)
    try:
        for number in range(times + 1):
            own = tool.open(f"ready-{number}")
            began = time.perf_counter()
            await own.prepare()
            found.append((time.perf_counter() - began) * 1000)
            for _ in range(5):  # an attempt of a few calls
                await own.call("browser_navigate", {"url": url})
            await own.close()
    finally:
        await toolset.close()
        browser.close()
    return found[1:]  # the first has started the browser


def rows(rounds: int = 3) -> list[Row]:
    """The three figures. Raises NotRun without a browser."""
    try:
        find_browser()
    except MissingCapability as missing:
        raise NotRun(str(missing)) from None
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        authority = Authority.load_or_create(work / "state")
        pairs = []
        with serving("datasette", work / "application") as port:
            urls = [f"http://127.0.0.1:{port}{path}" for path in PATHS]
            asyncio.run(_plain(urls[:2]))  # Datasette and the disk are warm from here on
            for turn in range(rounds):
                ours = asyncio.run(_recorded(work / f"snap{turn}", authority, urls))
                pairs.append(
                    (ours, *(asyncio.run(_plain(urls, each)) for each in ("page", "nothing", "context")))
                )
        with Snapshot.open(work / "snap0") as snapshot, Gateway(snapshot, authority=authority) as gateway:
            speeds = [asyncio.run(_checked(snapshot, gateway)) for _ in range(rounds)]
            ready = asyncio.run(_ready(snapshot, gateway))
    ratio, kept, alike = (statistics.median(pair[n] / pair[0] for pair in pairs) for n in (1, 2, 3))
    minute = [60 * len(PATHS) / statistics.median(one) for one in zip(*pairs, strict=True)]
    speed, whole = (statistics.median(one) for one in zip(*speeds, strict=True))
    wait = statistics.median(ready)
    return [
        Row("recording views", f"{minute[0]:.0f} views/min", f"{minute[1]:.0f} by a plain script", ratio,
            f"≥ {RECORDING} ×", ratio >= RECORDING, f"{kept:.2f} × one that keeps its page, {alike:.2f} × one with a context for each view, as ours"),
        Row("check", f"{speed:.1f} views/s", note=f"{whole:.1f} with the browser's start",
            bar=f"≥ {CHECK:.0f} views/s", held=speed >= CHECK),
        Row("browser session ready", f"{wait:.0f} ms", bar=f"< {READY:.0f} ms", held=wait < READY),
    ]  # fmt: skip


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    """Measures and prints."""
    for row in rows(rounds):
        ratio = "" if row.ratio is None else f", {row.ratio:.2f} ×"
        click.echo(f"{row.name}: {row.ours} {row.theirs}{ratio} (bar {row.bar}) {row.note} {'held' if row.held else 'NOT HELD'}")  # fmt: skip


if __name__ == "__main__":
    main()
