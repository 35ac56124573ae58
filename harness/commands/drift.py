from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import SNAPSHOT
from stillweb.harness.console import print_json, say

_TIERS = {"text": "text changed", "shape": "shape changed", "gold": "gold gone", "unreachable": "unreachable"}


@click.command("drift")
@click.argument("old", type=SNAPSHOT)
@click.argument("new", type=SNAPSHOT)
@click.option("--tasks", "source", metavar="SET", help="A task set: says which tasks expire (docs/tasks.md).")
@click.option(
    "--fail-on",
    type=click.Choice(list(_TIERS)),
    help="A gate: exit code 1 if a task (without --tasks: a page) is of this tier or a worse one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(old: Path | str, new: Path | str, source: str | None, fail_on: str | None, as_json: bool) -> int:
    """Say how far the site of OLD has drifted by the time of NEW, in tiers, and which tasks expire.

    \b
    stillweb refresh site.wacz -o now
    stillweb drift site.wacz now --tasks tasks.jsonl --fail-on gold
    """
    from stillweb.api import drift

    found = drift(old, new, tasks=source if source is not None else (), note=say)
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(str(found))
    return 1 if fail_on is not None and found.at_least(_TIERS[fail_on]) else 0
