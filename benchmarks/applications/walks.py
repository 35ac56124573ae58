"""`python -m benchmarks.applications.walks`: walks through real applications in a browser, recorded and replayed.

Walk A of each application is recorded as a user records; walks B are recorded as truth, with their secrets. *Open loop*: the
requests of B are asked of A's recording in B's own history. *Closed loop*: Chromium walks B against a replay of A, and the pages'
texts are compared with those of the running application. What an application needs is installed into the work folder's own
virtual environment, or by npm; Fossil comes from the system's packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from benchmarks.applications.application import Application, install, serving
from benchmarks.applications.catalogue import APPLICATIONS
from benchmarks.applications.open_loop import Drawn, asked
from benchmarks.states import DEFAULT, Step, calibration, engine_named, head, row
from stillweb.proxy.browser.browser import find_browser
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.evidence import SERVED, SURE
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

SEEN = """() => {
  let text = document.documentElement.innerText
  const fields = (root) => {
    for (const one of root.querySelectorAll('*'))
      if (one.shadowRoot) {
        text += '\\n' + [...one.shadowRoot.children].map((child) => (child.matches('style') ? '' : child.innerText || '')).join('\\n')
        fields(one.shadowRoot)
      } else if (one.matches('input, textarea, select') && !/hidden|password|submit|button/.test(one.type))
        text += `\\n[${one.name}] ${/checkbox|radio/.test(one.type) ? one.checked : one.value}`
  }
  fields(document)
  return text
}"""
# in the text of a page that was a miss, or whose script tells of one
MISSED = re.compile("stillweb: miss:|504 Not In Snapshot")
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=OptimizationHints,AutofillServerCommunication",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
    "--ignore-certificate-errors",
]


def _settled(page: Any, at: str = "", quiet: float = 0.5, limit: float = 9.0) -> str:
    """Wait until a page is `at` an address, if one is given, and its text stays as it is; return the text.

    A page that never comes there, or never rests, is looked at when `limit` is over.
    """
    from playwright.sync_api import Error

    with suppress(Error):  # a page that never rests is looked at as it is
        page.wait_for_load_state("networkidle", timeout=4000)
    last, since, end = "", time.monotonic(), time.monotonic() + limit
    while time.monotonic() < end:
        try:
            now = page.evaluate(SEEN)
        except Error:
            now = None  # it is being replaced
        if now is None or now != last:
            last, since = now or "", time.monotonic()
        elif time.monotonic() - since > quiet and (at in ("", page.url) or MISSED.search(now)):
            break
        time.sleep(0.1)
    return last


def browse(
    app: Application,
    walk: list[str],
    proxy: str | None = None,
    judge: Callable[[int, dict[str, Any]], None] = lambda number, page: None,
    addresses: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Walk in Chromium, through a proxy if one is given; return for each act the page's address and text, and its error.

    `judge` sees each page while it is open. `addresses`: where each act led before.
    """
    from playwright.sync_api import Error, sync_playwright

    found = []
    with sync_playwright() as playwright:
        settings: dict[str, Any] = {"executable_path": find_browser(), "args": FLAGS}
        if proxy:
            through = urlsplit(proxy)
            settings["proxy"] = {"server": f"http://{through.hostname}:{through.port}", "bypass": "<-loopback>", "username": through.username or "default", "password": through.password or "x"}  # fmt: skip
        browser = playwright.chromium.launch(**settings)
        context = browser.new_context(
            viewport={"width": 1200, "height": 900}, locale="en-GB", timezone_id="UTC"
        )
        context.set_default_timeout(15_000)
        context.set_default_navigation_timeout(
            600_000
        )  # the first page waits until the site's model is learnt
        page = context.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        for act, at in zip_longest(walk, addresses, fillvalue=""):
            failed = None
            try:
                app.acts[act](page, app.address)
            except Error as error:
                failed = str(error).split("\n")[0]
            text = _settled(page, "" if failed else at)
            found.append({"act": act, "text": text, "url": page.url, "error": failed})
            judge(len(found) - 1, found[-1])
        browser.close()
    return found


def record(app: Application, work: Path, walk: str, redact: bool) -> Path:
    """Record a walk through the running application; return the snapshot's folder."""
    path = work / walk
    shutil.rmtree(path, ignore_errors=True)
    with (
        serving(app, work),
        Writer.open(path) as writer,
        Recorder(writer, redact=redact, challenge=True) as recorder,
    ):
        pages = browse(app, app.walks[walk], recorder.proxy_url("walk"))
    (work / f"{walk}.json").write_text(json.dumps(pages, indent=1))
    return path


def replay(app: Application, work: Path, walk: str, least: float) -> Counter[str]:
    """Walk against a replay of walk A that serves what is `least` sure; count the pages that are as the running application showed them."""
    truth = json.loads((work / f"{walk}.json").read_text())
    ledger = work / f"{walk}.ledger"
    drawn, seen, before = Drawn(app), 0, "right"
    found: Counter[str] = Counter()

    def judge(number: int, page: dict[str, Any]) -> None:
        nonlocal seen, before
        time.sleep(0.1)  # the ledger is written so late at most
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        since, seen = lines[seen:], len(lines)
        missed = any(line["verdict"] == "miss" and not line.get("irrelevant") for line in since)
        if _lines(drawn, page["text"]) == _lines(drawn, truth[number]["text"]):
            page["is"] = "right"
        elif missed or MISSED.search(page["text"]):
            page["is"] = "miss"
        elif not since and before != "right":
            page["is"] = (
                before  # nothing was asked for: it is the page before, which lacked what the act needs
            )
        else:
            doubted = any(line.get("ambiguous") or line.get("confidence", 1) < SURE for line in since)
            page["is"] = "wrong" if doubted else "wrong and sure"
        found[page["is"]] += 1
        before = page["is"]

    with (
        Snapshot.open(work / "A") as snapshot,
        Gateway(snapshot, ledger=Ledger(ledger), challenge=True, min_confidence=least) as gateway,
    ):
        addresses = [page["url"] for page in truth]
        pages = browse(app, app.walks[walk], gateway.proxy_url("walk"), judge, addresses)
    if found["miss"] and found["wrong"]:
        found = _asked_live(app, work, pages, drawn)
    (work / f"{walk}.replayed.json").write_text(json.dumps(pages, indent=1))
    return found


def _asked_live(app: Application, work: Path, pages: list[dict[str, Any]], drawn: Drawn) -> Counter[str]:
    """Walk the running application without the acts that were misses; a wrong page that is right for what was asked since is no fault."""
    done = [page for page in pages if page["is"] != "miss"]
    with serving(app, work):
        live = browse(app, [page["act"] for page in done])
    for page, truth in zip(done, live, strict=True):
        if page["is"] == "wrong" and _lines(drawn, page["text"]) == _lines(drawn, truth["text"]):
            page["is"] = "right for what was asked"
    return Counter(page["is"] for page in pages)


def _lines(drawn: Drawn, text: str) -> list[str]:
    return [line.strip() for line in drawn.still(text).splitlines() if line.strip()]


@click.group()
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=Path("evidence-data"),
    show_default=True,
    help="Where data, recordings and installed packages are kept.",
)
@click.pass_context
def main(context: click.Context, work: Path) -> None:
    """Walk through real applications, recorded and replayed."""
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("STILLWEB_STATE", str(work.absolute() / "state"))
    context.obj = work.absolute()


@main.command("record")
@click.argument("names", nargs=-1)
@click.option("--walk", "walks", multiple=True, help="Record only these walks.")
@click.pass_obj
def record_all(work: Path, names: tuple[str, ...], walks: tuple[str, ...]) -> None:
    """Record walk A of each application, and walks B as truth, with their secrets."""
    for name in names or APPLICATIONS:
        app = APPLICATIONS[name]
        install(app, work / name)
        for walk in walks or app.walks:
            path = record(app, work / name, walk, redact=walk == "A")
            pages = json.loads((work / name / f"{walk}.json").read_text())
            failed = [f"{page['act']}: {page['error']}" for page in pages if page["error"]]
            with Snapshot.open(path) as snapshot:
                click.echo(f"{name} {walk}: {len(pages)} acts, {sum(1 for _ in snapshot.captures())} captures; failed: {'; '.join(failed) or 'none'}")  # fmt: skip


@main.command("open")
@click.argument("names", nargs=-1)
@click.option("--engine", default="evidence", show_default=True, help="An engine by name, or MODULE:NAME.")
@click.option("--threshold", default=DEFAULT, show_default=True, help="The least confidence that is served.")
@click.option("--pages", is_flag=True, help="Ask for no scripts, styles and pictures.")
@click.option(
    "--wrong", is_flag=True, help="List the requests that are answered wrongly or missed needlessly."
)
@click.pass_obj
def open_loop(
    work: Path, names: tuple[str, ...], engine: str, threshold: float, pages: bool, wrong: bool
) -> None:
    """Ask the requests of walks B of the recording of walk A; script, style and pictures are counted apart."""
    made = engine_named(engine)
    whole: list[Step] = []
    assets: list[Step] = []
    for name in names or APPLICATIONS:
        app, own = APPLICATIONS[name], []
        for walk in app.walks:
            if walk.startswith("B") and (work / name / walk).exists() and (work / name / "A").exists():
                found = [*asked(app, work / name / "A", work / name / walk, made, not pages)]
                own += [step for asset, step in found if not asset]
                assets += [step for asset, step in found if asset]
        if own:
            click.echo((head() + "\n" if not whole else "") + row(name, own, threshold))
        whole += own
        for step in own if wrong else ():
            served = step.confidence >= threshold
            if (served and not step.right) or (step.answerable and not served):
                click.echo(f"    {'wrong' if served else 'needless miss'} {step.confidence:.3f} {'' if step.answerable else 'un'}answerable {step.what}")  # fmt: skip
    click.echo(row("**all**", whole, threshold) + "\n" + row("scripts, styles, pictures", assets, threshold))
    for tenth, (said, true, count) in calibration(whole).items():
        click.echo(f"| from {tenth / 10:.1f} | said {said:.2f} | true {true:.2f} | {count} |")


@main.command("closed")
@click.argument("names", nargs=-1)
@click.option("--walk", "walks", multiple=True, default=("B",), show_default=True, help="Walk these.")
@click.option(
    "--min-confidence",
    "least",
    default=SERVED,
    show_default=True,
    help="The least confidence that is served.",
)
@click.pass_obj
def closed_loop(work: Path, names: tuple[str, ...], walks: tuple[str, ...], least: float) -> None:
    """Walk in Chromium against a replay of walk A, and count the pages that are right."""
    whole: Counter[str] = Counter()
    for name in names or APPLICATIONS:
        for walk in walks:
            found = replay(APPLICATIONS[name], work / name, walk, least)
            whole += found
            click.echo(f"{name} {walk}: {_counted(found)}")
    click.echo(f"all: {_counted(whole)}")


def _counted(found: Counter[str]) -> str:
    names = ("right", "right for what was asked", "miss", "wrong", "wrong and sure")
    kinds = ", ".join(f"{found[kind]} {kind}" for kind in names)
    return f"of {found.total()} pages {kinds}"


if __name__ == "__main__":
    main()
