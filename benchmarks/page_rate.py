"""Pages a second in Chromium: direct, through `stillweb replay`, and by Playwright's `route_from_har`.

    python -m benchmarks.page_rate FOLDER [--pages 60] [--rounds 7]

FOLDER is a site of HTML files, such as the manual in Debian's python3.11-doc, which nginx serves on loopback. The same
pages are recorded once through Stillweb and once as a HAR. Each round opens all pages in each way, in turns of ten
pages so that a busy machine slows all three alike; a ratio is the median of the rounds. The browser starts once for each
way, and each round has a new context. The proxy is named without a session: to send credentials Playwright intercepts
each request and turns the browser's cache off, which alone takes a third of the pages a second. Bar: issue 33.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks import servers
from stillweb.proxy.browser.browser import find_browser
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer

BAR = 0.95  # of the pages a second that the same browser opens without Stillweb
TURN = 10  # pages in a row
DIRECT, OURS, HAR = "direct", "stillweb replay", "route_from_har"
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@contextmanager
def site(work: Path, root: Path) -> Iterator[str]:
    """Serve a folder with nginx over plain HTTP, and yield its address."""
    port = servers.free_port()
    config = work / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(
        f"{user} worker_processes 1; pid {work}/nginx.pid; error_log {work}/nginx.log; daemon off;\n"
        "events {}\nhttp { access_log off; sendfile on; include /etc/nginx/mime.types;\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    with servers.running(["/usr/sbin/nginx", "-c", str(config)], port):
        yield f"http://127.0.0.1:{port}"


def _through(proxy: str | None) -> dict[str, Any]:
    return {"proxy": {"server": proxy, "bypass": "<-loopback>"}} if proxy else {}


def _open(page: Any, urls: list[str]) -> float:
    """Open the pages one after the other, and return the seconds that it took."""
    began = time.perf_counter()
    for url in urls:
        page.goto(url, wait_until="load")
    return time.perf_counter() - began


def chosen(root: Path, count: int) -> list[str]:
    """Return the paths of `count` pages, taken evenly from all."""
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*.html"))
    if len(found) < count:
        raise click.UsageError(f"{root}: has {len(found)} pages of HTML. Give a folder with {count}.")
    return [found[number * len(found) // count] for number in range(count)]


def measured(root: Path, count: int, rounds: int) -> list[dict[str, float]]:
    """Return for each round the seconds of each way. Raises RuntimeError if a page missed or failed."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary, ExitStack() as up:
        work = Path(temporary)
        os.environ["STILLWEB_STATE"] = str(work / "state")
        base = up.enter_context(site(work, root))
        urls = [f"{base}/{path}" for path in chosen(root, count)]
        playwright = up.enter_context(sync_playwright())

        def browser(proxy: str | None = None) -> Any:
            return playwright.chromium.launch(executable_path=find_browser(), args=FLAGS, **_through(proxy))  # fmt: skip

        direct = browser()
        context = direct.new_context(record_har_path=work / "site.har", record_har_mode="full")
        _open(context.new_page(), urls)
        context.close()
        with Writer.open(work / "snap") as writer, Recorder(writer) as recorder:
            recorded = browser(recorder.url)
            _open(recorded.new_page(), urls)
            recorded.close()
        server = up.enter_context(servers.replay(work, work / "snap"))
        assert server.through is not None
        browsers = {DIRECT: direct, OURS: browser("http://{}:{}".format(*server.through)), HAR: browser()}
        found = []
        for number in range(rounds + 1):
            contexts = {way: launched.new_context() for way, launched in browsers.items()}
            contexts[HAR].route_from_har(work / "site.har", not_found="abort")
            pages = {way: context.new_page() for way, context in contexts.items()}
            seconds = dict.fromkeys(pages, 0.0)
            for turn, start in enumerate(range(0, len(urls), TURN)):
                ways = [*pages]
                at = (number + turn) % len(ways)
                for way in ways[at:] + ways[:at]:
                    seconds[way] += _open(pages[way], urls[start : start + TURN])
            for context in contexts.values():
                context.close()
            found.append(seconds)
        for launched in browsers.values():
            launched.close()
        missed = (work / "snap.ledger").read_text().count('"verdict": "miss"')
        if missed:
            raise RuntimeError(f"{missed} requests missed: see {work / 'snap.ledger'}")
    return found[1:]  # the first warms the disk's cache


@click.command()
@click.argument("root", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--pages", default=60, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(root: Path, pages: int, rounds: int) -> None:
    """Open the pages of FOLDER in Chromium in three ways, and print pages a second."""
    found = measured(root.resolve(), pages, rounds)
    for way in found[0]:
        rate = pages / statistics.median(one[way] for one in found)
        ratios = sorted(one[DIRECT] / one[way] for one in found)
        held = (
            ""
            if way != OURS
            else f" (bar ≥ {BAR} ×: {'held' if statistics.median(ratios) >= BAR else 'NOT HELD'})"
        )
        click.echo(f"{way}: {rate:.1f} pages/s, {statistics.median(ratios):.2f} × direct, {ratios[0]:.2f} to {ratios[-1]:.2f}{held}")  # fmt: skip


if __name__ == "__main__":
    main()
