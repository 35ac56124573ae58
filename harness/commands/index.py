from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import PATH
from stillweb.harness.console import progress
from stillweb.snapshots.words import pluralize


@click.command("index")
@click.argument("snapshot", type=PATH)
def command(snapshot: Path) -> None:
    """Rebuild the index of an open SNAPSHOT (a directory) from its WARCs alone.

    \b
    stillweb index site
    """
    from stillweb.snapshots.writer import reindex

    with progress("indexing") as advance:
        captures = reindex(snapshot, progress=advance)
    click.echo(f"{snapshot}: {pluralize(captures, 'capture')}")
