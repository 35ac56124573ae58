"""`stillweb refresh`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.commands.options import SNAPSHOT, FiniteRange, LocalPath
from stillweb.harness.console import progress, say, say_failures
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
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
    help="Seconds between two pages of one host.",
)
@click.option(
    "--ca-file",
    "ca_file",
    type=LocalPath(exists=True, path_type=Path),
    help="PEM of authorities to trust, too.",
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

    Only GET requests are repeated beside the views, so that nothing is posted twice. A page that robots.txt forbids is
    left out, and named. A host that answers 429, or 503 with Retry-After, is left alone as long as it asks (up to five
    minutes), and then asked again, three times in all.

    \b
    stillweb refresh site.wacz -o now && stillweb drift site.wacz now --tasks tasks.jsonl
    """
    from stillweb.harness.curation.refreshing import BusyAnswers, refresh
    from stillweb.proxy.browser.browser import complete, new_profile
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.browser.uploads import contents_of
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.proxy.replay.ledger import misses as find_misses
    from stillweb.proxy.replay.ledger import read
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.errors import UsageError
    from stillweb.snapshots.writer import Writer

    if out.exists():
        raise UsageError(f"{out}: exists. Name a new directory with -o")
    with Snapshot.open(*snapshots) as snapshot:
        flows = [Flow(view.url, view.steps, contents_of(snapshot, view)) for view in snapshot.views()]
        entries = list(_alone(snapshot))
        others = len({c.key for c in snapshot.captures() if c.method not in ("GET", "HEAD")})
        profile = complete(snapshot.profile) if snapshot.profile is not None else new_profile()
    entries += [entry for ledger in misses for entry in find_misses(read(ledger))]
    busy = BusyAnswers()
    provenance = provenance_now("refresh", {})
    with (
        Writer.open(out, provenance=provenance) as writer,
        Recorder(writer, upstream_ca=ca_file, leave_out=busy) as recorder,
    ):
        if flows:
            writer.adopt(profile)
        with progress("recording anew", unit="pages") as advance:
            refreshed = refresh(
                recorder, writer, busy, flows, entries,
                profile=profile, pause=pause, obey_robots=not ignore_robots, progress=advance,
            )  # fmt: skip
    for url in refreshed.forbidden:
        say(f"{url}: left out, since its site's robots.txt forbids it or can't be read")
    for url, reason in refreshed.failed:
        say(reason if reason.startswith((url, "not recorded: ")) else f"{url}: {reason}")
    say_failures(recorder.failures)
    say(f"{out}: {recorder.stats.line()}")
    if others:
        say(
            f"{counted(others, 'request')} with other methods than GET repeated only where a view's steps make them"
        )
    return 1 if refreshed.failed else 0


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
