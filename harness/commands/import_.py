from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import LocalPath
from stillweb.harness.console import progress, say
from stillweb.snapshots.contents.failures import failed_line
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=LocalPath(exists=True, path_type=Path))
@click.option(
    "-o", "--out", required=True, type=LocalPath(path_type=Path), help="The snapshot directory to write."
)
def command(files: tuple[Path, ...], out: Path) -> int:
    """Take FILES (HAR, WARC, ARC, WACZ, mitmproxy flows) into the snapshot directory OUT.

    Of a damaged file all that is whole is taken, and the exit code is 3.

    \b
    stillweb import session.har crawl.warc.gz -o site
    """
    from stillweb.harness.commands.recorded_again import answered_on_other_days
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.operations.importing import import_files

    with progress(f"importing {counted(len(files), 'file')}", unit="bytes") as advance:
        report = import_files(files, out, progress=advance)
    for note in report.notes:
        say(note)
    with Snapshot.open(out) as snapshot:
        other = answered_on_other_days(snapshot)
        twice = _twice(snapshot)
    if twice:
        say(
            f"there twice, with the same time and answer: {counted(twice, 'capture')}; was a file imported before? "
            "No answer hangs on it"
        )
    if other:
        early, late = other[0]
        say(
            f"answered otherwise on another day: {len(other)} of its requests, such as {early.url} "
            f"({early.timestamp[:8]}, {late.timestamp[:8]}); to have the site of one day, take its files alone"
        )
    if report.failures:
        say(f"{out}: {failed_line(report.failures)}")
    sockets = f", {counted(report.sockets, 'web socket')}" if report.sockets else ""
    click.echo(f"{out}: {counted(report.captures, 'capture')}, {counted(report.views, 'view')}{sockets}")
    return 3 if report.damaged else 0


def _twice(snapshot: Snapshot) -> int:
    """Count the captures that repeat another one: same request, time and answer."""
    seen: set[int] = set()
    count = 0
    for capture in snapshot.captures():
        count += 1
        seen.add(hash((capture.exact, capture.method, capture.url, capture.timestamp, capture.digest)))
    return count - len(seen)
