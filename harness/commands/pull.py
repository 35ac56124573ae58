from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT
from stillweb.snapshots.words import pluralize


@click.command("pull")
@click.argument("address")
@click.option("-o", "--out", required=True, type=OUT, help="The new directory.")
def command(address: str, out: Path) -> None:
    """Copy what was published at ADDRESS to a new directory, and check every digest on arrival.

    \b
    stillweb pull hub:lab/penguins -o penguins
    stillweb pull oci://registry.example/penguins:v1 -o penguins
    stillweb certify penguins
    """
    from stillweb.api import pull

    click.echo(f"{out}: {pluralize(len(pull(address, out)), 'file')}")
