from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stillweb.harness.commands.options import FILE, OUT, PATH, SNAPSHOT, FiniteRange, OptionFor
from stillweb.harness.console import progress, say, say_failures
from stillweb.snapshots.words import pluralize


@click.command("refresh")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("-o", "--out", required=True, type=OUT, help="The new snapshot, a directory.")
@click.option(
    "--misses",
    multiple=True,
    type=FILE,
    help="A ledger, whose misses are recorded, too; may be given several times.",
)
@click.option(
    "--pause",
    type=FiniteRange(0),
    default=0.5,
    show_default=True,
    help="Seconds between two pages of one host.",
)
@click.option("--ca-file", "ca_file", type=PATH, help="PEM of authorities to trust, too.")
@click.option(
    "--private/--no-private",
    cls=OptionFor,
    needs="--misses",
    help="ask addresses that are not public, too. Those that the snapshot holds are always asked. "
    "[default: --no-private]",
)
@click.option("--ignore-robots", is_flag=True, help="Do not ask robots.txt.")
def command(snapshots: tuple[Path | str, ...], out: Path, **options: Any) -> int:
    """Record anew what SNAPSHOTS hold: their views with their steps, one after the other, and pages that no view loaded.

    Only GET requests are repeated beside the views, so that nothing is posted twice. A page that robots.txt forbids is
    left out, and named. A host that answers 429, or 503 with Retry-After, is left alone as long as it asks (up to five
    minutes), and then asked again, three times in all.

    \b
    stillweb refresh site.wacz -o now && stillweb drift site.wacz now --tasks tasks.jsonl
    """
    from stillweb.api import refresh

    with progress("recording anew", unit="pages") as advance:
        done = refresh(snapshots, out, progress=advance, **options)
    for url in done.forbidden:
        say(f"{url}: left out, since its site's robots.txt forbids it or can't be read")
    for url, reason in done.failed:
        say(reason if reason.startswith((url, "not recorded: ")) else f"{url}: {reason}")
    say_failures(done.failures)
    say(f"{out}: {done.stats.line()}")
    if done.others:
        say(
            f"{pluralize(done.others, 'request')} with other methods than GET repeated only where a view's steps make them"
        )
    return 1 if done.failed else 0
