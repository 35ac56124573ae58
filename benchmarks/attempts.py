"""Browser attempts of one page each: by bare Playwright, one at a time, and by `stillweb run`.

    python -m benchmarks.attempts FOLDER [--attempts 60] [--rounds 3]

FOLDER is a site of HTML files, such as the manual in Debian's python3.11-doc, which nginx serves on loopback and Stillweb
records once. An attempt opens a context of its own in one browser, goes to its page, and reads the page's accessibility
tree; Stillweb's is a scripted agent's call of `browser_navigate`, with trace and score. Times are of whole processes, from
the start of the interpreter to its end, with compiled modules, as a user has them. Bars: issue 33.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import yaml

from benchmarks.page_rate import FLAGS, chosen, site
from stillweb.proxy.browser.browser import find_browser
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer

ALONE = 1.3  # of the time of bare Playwright, one attempt at a time
AT_ONCE = 12 / 17  # the same of as many at once as the machine carries, with two cores
BARE = """
import json, sys
from playwright.sync_api import sync_playwright
settings, urls = json.load(sys.stdin)
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(**settings)
    for url in urls:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.locator("body").aria_snapshot()
        context.close()
    browser.close()
"""


def _bare(urls: list[str]) -> float:
    """Return the seconds that bare Playwright takes."""
    began = time.perf_counter()
    settings = {"executable_path": str(find_browser()), "args": FLAGS}
    asked = json.dumps([settings, urls])
    subprocess.run([sys.executable, "-c", BARE], input=asked, text=True, check=True)
    return time.perf_counter() - began


def _ours(work: Path, number: int, parallel: int | None) -> float:
    """Return the seconds that `stillweb run` takes. Raises RuntimeError if an attempt failed."""
    out = work / f"run-{number}-{parallel}"
    command = [sys.executable, "-m", "stillweb", "run", "--tasks", str(work / "tasks.jsonl"), "-o", str(out)]
    command += ["--agent", str(work / "agent.yaml"), "--snapshot", str(work / "snap"), "--contract", "playwright-mcp"]  # fmt: skip
    command += ["--parallel", str(parallel)] if parallel else []
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - began
    if done.returncode or " 0 misses" not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    return taken


def measured(root: Path, count: int, rounds: int) -> list[dict[str, float]]:
    """Return for each round the seconds of each way."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["STILLWEB_STATE"] = str(work / "state")
        with site(work, root) as base:
            urls = [f"{base}/{path}" for path in chosen(root, count)]
            with (
                Writer.open(work / "snap") as writer,
                Recorder(writer) as recorder,
                sync_playwright() as playwright,
            ):
                proxy = {"server": recorder.url, "bypass": "<-loopback>"}
                browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS, proxy=proxy)  # type: ignore[arg-type]
                page = browser.new_page()
                for url in urls:
                    page.goto(url)
                browser.close()
            steps = [{"call": "browser_navigate", "with": {"url": "{{ task.question }}"}, "as": "page"}]
            (work / "agent.yaml").write_text(yaml.safe_dump({"default": {"steps": steps, "answer": "seen"}}))
            tasks = [{"id": f"t{n}", "question": url, "answer": "seen"} for n, url in enumerate(urls)]
            (work / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
            found = []
            for number in range(rounds):
                ways = {"bare Playwright": _bare(urls), "one at a time": _ours(work, number, 1)}
                found.append(ways | {"as many as by default": _ours(work, number, None)})
    return found


@click.command()
@click.argument("root", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--attempts", default=60, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(root: Path, attempts: int, rounds: int) -> None:
    """Make attempts on the pages of FOLDER, and print their seconds."""
    found = measured(root.resolve(), attempts, rounds)
    bare, *ours = found[0]
    click.echo(f"{bare}: {statistics.median(one[bare] for one in found):.1f} s")
    for way, bar in zip(ours, (ALONE, AT_ONCE), strict=True):
        ratio = statistics.median(one[way] / one[bare] for one in found)
        held = "held" if ratio <= bar else "NOT HELD"
        click.echo(f"{way}: {statistics.median(one[way] for one in found):.1f} s, {ratio:.2f} × bare (bar ≤ {bar:.2f}: {held})")  # fmt: skip


if __name__ == "__main__":
    main()
