"""The demo `stillweb demo`: record a site, stop it, and do everything else without a network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from stillweb.harness.console import progress, say, status_line
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.extras import check_installed
from stillweb.snapshots.words import pluralize, sized

HERE = Path(__file__).parent
CONTRACTS = ("playwright-mcp", "mcp-fetch", "serper-mcp", "pdf-reader")
MARK = ".stillweb-demo"
# packages of the extras in pyproject.toml that the demo needs
EXTRA = ("datasette", "python_multipart", "trustme", "mitmproxy", "playwright", "openai")


def walk(out: Path) -> Path:
    """Run the whole demo in the directory `out`, which is emptied first, and return the report's path."""
    from stillweb.proxy.net.isolation import can_isolate

    started = time.monotonic()
    check_installed(*EXTRA)
    _empty(out)
    site = out / "site"
    say("1. record: Datasette with open data, and a page of ours, over TLS on loopback")
    _record(site, out / "origin")
    say("2. the origin is stopped; from here on nothing is asked of any server")
    sealed = _seal(site)
    why_not = can_isolate()
    say(_third(why_not))
    first = _run(sealed, out / "run", isolated=why_not is None)
    say("4. the same again, in a new process")
    again = _run(sealed, out / "run-again", isolated=why_not is None)
    one, two = first["certificate"]["hash"], again["certificate"]["hash"]
    if one != two:
        raise StillwebError(f"the two runs differ: {one} and {two}; see 'stillweb certify {out / 'run'}'")
    say(f"   the same hash: {one}")
    report = out / "report.html"
    _stillweb("report", str(out / "run"), "-o", str(report))
    say(f"done in {time.monotonic() - started:.0f} s; the report:")
    click.echo(str(report.resolve()))
    return report.resolve()


def _empty(out: Path) -> None:
    """Empty a directory of an earlier demo. Raise UsageError for any other directory that is not empty."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise UsageError(f"{out}: is not empty and no earlier demo; name another directory with -o")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()


def _record(site: Path, work: Path) -> None:
    from stillweb.harness.demo.origin import Origin
    from stillweb.proxy.browser.browser import complete
    from stillweb.proxy.browser.capture_view import Fetcher
    from stillweb.proxy.browser.steps import load_flows
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.writer import Writer

    flows = load_flows(HERE / "record.yaml")
    profile = complete(Profile())
    provenance = provenance_now("stillweb demo", {"pdfs": True})
    opened = Writer.open(site, profile=profile, provenance=provenance)
    with Origin(work) as origin, opened as writer, status_line() as show:
        recorder = Recorder(writer, resolve=origin.resolve, upstream_ca=origin.ca)
        with recorder:
            fetcher = Fetcher(recorder, writer, profile)
            results = fetcher.fetch([], flows, pdfs=True, progress=lambda url, event: show(f"{event}: {url}"))
    failed = [result for result in results if not result.ok]
    if failed:
        raise StillwebError(f"recording {failed[0].url} failed: {failed[0].error}")
    views = sum(len(result.views) for result in results)
    gated = sum("#view=" in address for result in results for address in result.views)
    documents = sum(len(result.documents) for result in results)
    say(
        f"   {pluralize(writer.captures, 'capture')}, {pluralize(views, 'view')} ({gated} behind a filter, facet, tab or page), {pluralize(documents, 'PDF')}"
    )


def _seal(site: Path) -> Path:
    from stillweb.snapshots.operations.verifying import verify
    from stillweb.snapshots.wacz import seal

    with progress("   seal", unit="bytes") as advance:
        sealed = seal(site, progress=advance)
    problems = verify(sealed.path)
    if problems:
        raise StillwebError(f"the sealed snapshot is damaged: {problems[0]}")
    say(f"   {sealed.path.name}: snapshot {sealed.id[:16]}, {sized(sealed.size)}, every record verified")
    return sealed.path


def _third(why_not: str | None) -> str:
    """Return the message on the runs: in a network namespace, or the reason why not."""
    runs = "3. run four tasks on the snapshot with a scripted agent"
    if why_not is None:
        return f"{runs}, in a namespace that has only loopback"
    return f"{runs}\n   not isolated: {why_not} (the gateway has no way out all the same)"


def _run(sealed: Path, run: Path, *, isolated: bool) -> dict[str, Any]:
    words = ["run", "--tasks", str(HERE / "tasks.jsonl"), "--agent", f"script:{HERE / 'agent.yaml'}"]
    words += ["--snapshot", str(sealed), "-o", str(run), "--synthetic-search"]
    for contract in CONTRACTS:
        words += ["--contract", contract]
    if isolated:
        words.append("--isolate")
    _stillweb(*words)
    summary: dict[str, Any] = json.loads(_stillweb("score", str(run), "--json", quiet=True))
    return summary


def _stillweb(*words: str, quiet: bool = False) -> str:
    """Run the command line in a new process. Its output is shown unless `quiet`."""
    command = [sys.executable, "-m", "stillweb", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE if quiet else None, text=True)
    if done.returncode:
        raise StillwebError(f"'stillweb {words[0]}' ended with exit code {done.returncode}")
    return done.stdout or ""
