from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, PATH
from stillweb.harness.console import progress, say
from stillweb.snapshots.contents.failures import failures_message
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option("-o", "--out", required=True, type=OUT, help="The snapshot directory to write.")
def command(files: tuple[Path, ...], out: Path) -> int:
    """Take FILES (HAR, WARC, ARC, WACZ, mitmproxy flows) into the snapshot directory OUT.

    Of a damaged file all that is whole is taken, and the exit code is 3.

    \b
    stillweb import session.har crawl.warc.gz -o site
    """
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.operations.importing import import_files

    with progress(f"importing {pluralize(len(files), 'file')}", unit="bytes") as advance:
        report = import_files(files, out, progress=advance)
    for note in report.notes:
        say(note)
    with Snapshot.open(out) as snapshot:
        other = _answered_on_other_days(snapshot)
        twice = _twice(snapshot)
    if twice:
        say(
            f"present twice, with the same time and answer: {pluralize(twice, 'capture')}; was a file imported before? "
            "No answer hangs on it"
        )
    if other:
        early, late = other[0]
        say(
            f"answered otherwise on another day: {len(other)} of its requests, such as {early.url} "
            f"({early.timestamp[:8]}, {late.timestamp[:8]}); to have the site of one day, take its files alone"
        )
    if report.failures:
        say(f"{out}: {failures_message(report.failures)}")
    sockets = f", {pluralize(report.sockets, 'web socket')}" if report.sockets else ""
    click.echo(f"{out}: {pluralize(report.captures, 'capture')}, {pluralize(report.views, 'view')}{sockets}")
    return 3 if report.damaged else 0


def _answered_on_other_days(snapshot: Snapshot) -> list[tuple[Capture, Capture]]:
    """Return (first capture, last differing one) for each request with another answer on another day.

    Archives of several years in one snapshot hold several versions of a site; a replay gives the earliest.
    """
    # most requests have one answer: keep only the captures of the others in memory
    answers: dict[str, int] = {}
    several: set[str] = set()
    for capture in snapshot.captures():
        asked, answer = capture.key, hash((capture.status, capture.digest))
        if answers.setdefault(asked, answer) != answer:
            several.add(asked)
    del answers
    first: dict[str, Capture] = {}
    other: dict[str, Capture] = {}
    found = [capture for capture in snapshot.captures() if capture.key in several]
    for capture in sorted(found, key=lambda one: (one.timestamp, one.place)):
        place = capture.key
        before = first.setdefault(place, capture)
        same = (before.status, before.digest) == (capture.status, capture.digest)
        if not same and before.timestamp[:8] != capture.timestamp[:8]:
            other[place] = capture
    return [(first[place], last) for place, last in other.items()]


def _twice(snapshot: Snapshot) -> int:
    """Count the captures that repeat another one: same request, time and answer."""
    seen: set[int] = set()
    count = 0
    for capture in snapshot.captures():
        count += 1
        seen.add(hash((capture.exact, capture.method, capture.url, capture.timestamp, capture.digest)))
    return count - len(seen)
