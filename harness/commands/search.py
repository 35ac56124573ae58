from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stillweb.harness.commands.options import SNAPSHOT, at_option
from stillweb.harness.console import print_json, say_damage, search_index


@click.command("search")
@click.argument("snapshots", type=SNAPSHOT, nargs=-1, required=True)
@click.argument("query")
@click.option("-n", "--limit", default=10, show_default=True, type=click.IntRange(1, 100))
@at_option
@click.option("--json", "as_json", is_flag=True, help="Print the hits as JSON.")
def command(at: str, snapshots: tuple[Path | str, ...], query: str, limit: int, as_json: bool) -> None:
    """Search the frozen texts of SNAPSHOTS, of which later ones lie over earlier ones.

    \b
    stillweb search site.wacz "chinstrap body mass" -n 3
    """
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.text.search import parse_query

    if not parse_query(query).finds:
        raise click.UsageError(f"{query!r} names no word to look for")
    with Snapshot.open(*snapshots, at=at) as opened:
        say_damage(opened)
        hits = search_index(opened).search(query, limit)
    if as_json:
        print_json([asdict(hit) for hit in hits])
        return
    for hit in hits:
        click.echo(f"{hit.rank}. {hit.title}\n   {hit.address}\n   {hit.snippet}")
    if not hits:
        click.echo("nothing found")
