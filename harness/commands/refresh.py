"""`stillweb refresh`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.commands.options import SNAPSHOT, FiniteRange, LocalPath
from stillweb.harness.console import say, say_failures
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.proxy.explore.politeness import Manners
    from stillweb.snapshots.snapshot import Snapshot


@click.command("refresh")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option(
    "-o", "--out", required=True, type=LocalPath(path_type=Path), help="The new snapshot, a directory."
)
@click.option(
    "--misses",
    multiple=True,
    type=LocalPath(exists=True, dir_okay=False, path_type=Path),
    help="A ledger, whose misses are recorded, too; may be given several times.",
)
@click.option(
    "--pause",
    type=FiniteRange(0),
    default=0.5,
    show_default=True,
    help="Seconds between requests that no view makes.",
)
@click.option(
    "--ca", "ca_file", type=LocalPath(exists=True, path_type=Path), help="PEM of authorities to trust, too."
)
@click.option("--ignore-robots", is_flag=True, help="Do not ask robots.txt.")
def command(
    snapshots: tuple[Path | str, ...],
    out: Path,
    misses: tuple[Path, ...],
    pause: float,
    ca_file: Path | None,
    ignore_robots: bool,
) -> int:
    """Record anew what SNAPSHOTS hold: their views with their steps, one after the other, and pages that no view loaded.

    Only GET requests are repeated beside the views, so that nothing is posted twice. What robots.txt forbids is left
    out, and named.

    \b
    stillweb refresh site.wacz -o now && stillweb drift site.wacz now --tasks tasks.jsonl
    """
    from stillweb.harness.curation.missing import record_misses
    from stillweb.proxy.browser.browser import complete, new_profile
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.browser.uploads import contents_of
    from stillweb.proxy.replay.ledger import read
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.errors import UsageError

    if out.exists():
        raise UsageError(f"{out}: exists. Name a new directory with -o")
    with Snapshot.open(*snapshots) as snapshot:
        flows = [Flow(view.url, view.steps, contents_of(snapshot, view)) for view in snapshot.views()]
        entries = list(_alone(snapshot))
        others = len({c.key for c in snapshot.captures() if c.method not in ("GET", "HEAD")})
        profile = snapshot.profile
    entries += [entry for ledger in misses for entry in read(ledger)]

    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.writer import Writer

    wrong = 0
    with (
        Writer.open(out, provenance=provenance_now("refresh", {})) as writer,
        Recorder(writer, upstream_ca=ca_file) as recorder,
    ):
        if not ignore_robots:
            from stillweb.proxy.explore.politeness import Manners

            settings = complete(profile) if profile is not None else new_profile()
            manners = Manners(recorder, settings, pause, "refresh")
            urls = list(
                dict.fromkeys([*(str(flow.url) for flow in flows), *(str(entry["url"]) for entry in entries)])
            )
            forbidden = asyncio.run(_forbidden(manners, urls))
            flows = [flow for flow in flows if flow.url not in forbidden]
            entries = [entry for entry in entries if entry["url"] not in forbidden]
            for url in forbidden:
                say(f"{url}: left out, since its site's robots.txt forbids it or can't be read")
        if flows:
            from stillweb.proxy.browser.capture_view import Fetcher

            writer.adopt(complete(profile) if profile is not None else new_profile())
            for result in Fetcher(recorder, writer, writer.profile).fetch([], flows, parallel=1):
                if not result.ok:
                    wrong += 1
                    say(f"{result.url}: {result.error}")
        for number, entry in enumerate(entries):
            time.sleep(pause if number else 0)
            recorded, asked = record_misses(recorder, [entry], say)
            wrong += asked - recorded
        recorder.wait_quiet(seconds=0.0, timeout=30.0)
        say_failures(recorder.failures)
        say(f"{out}: {recorder.stats.line()}")
    if others:
        say(
            f"{counted(others, 'request')} with other methods than GET repeated only where a view's steps make them"
        )
    return 1 if wrong else 0


async def _forbidden(manners: Manners, urls: Iterable[str]) -> list[str]:
    return [url for url in urls if url.startswith(("http://", "https://")) and not await manners.allowed(url)]


def _alone(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield an entry for each page, document or data set that no view loaded."""
    loaded = {str(one.get("url", "")) for view in snapshot.views() for one in view.captures}
    loaded |= {view.url.partition("#")[0] for view in snapshot.views()}
    seen: set[str] = set()
    for capture in sorted(snapshot.captures(), key=lambda c: (c.timestamp, c.begin, c.place)):
        if capture.method != "GET" or capture.url in loaded or capture.key in seen:
            continue
        seen.add(capture.key)
        yield {
            "session": "refresh", "seq": len(seen), "method": "GET", "url": capture.url, "verdict": "miss", "status": 0,
        }  # fmt: skip
