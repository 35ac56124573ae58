from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT
from stillweb.harness.console import show_page


@click.command("demo")
@click.option(
    "-o",
    "--out",
    type=OUT,
    default=Path("demo-run"),
    show_default=True,
    help="Where to work; an earlier demo there is removed.",
)
@click.option("--open/--no-open", "show", default=False, help="Open the report in the browser at the end.")
def command(out: Path, show: bool) -> None:
    """Record an embedded site, stop it, run four tasks on the snapshot offline, score, repeat, report.

    \b
    stillweb demo
    stillweb demo -o /tmp/demo --open
    """
    from stillweb.harness.demo.walk import walk
    from stillweb.proxy.record.recorder import tune_process

    tune_process()
    report = walk(out)
    if show:
        show_page(report.as_uri())
