from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import FILE, FOLDER, OUT, SNAPSHOT
from stillweb.harness.console import print_json, progress, say


@click.command("cut")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option(
    "--run", "runs", multiple=True, type=FOLDER, help="A run's directory; may be given several times."
)
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    type=FILE,
    help="A replay's ledger; may be given several times, also beside --run.",
)
@click.option("-o", "--out", required=True, type=OUT, help="A directory, or a file ending in .wacz.")
@click.option(
    "--pictures/--no-pictures",
    default=True,
    show_default=True,
    help="Keep the views of the pages that the run was at; its report shows them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    snapshots: tuple[Path | str, ...],
    runs: tuple[Path, ...],
    ledgers: tuple[Path, ...],
    out: Path,
    pictures: bool,
    as_json: bool,
) -> None:
    """Cut the part out of SNAPSHOTS (later ones lie over earlier ones) that runs and replays need: what none of them used is left out.

    They repeat on it with the same results: records are copied byte for byte, with all captures that an
    answer is chosen from and all that a state is learnt from.

    \b
    stillweb cut site.wacz --run run1 --run run2 -o small.wacz
    stillweb cut site.wacz --ledger tests.jsonl -o small.wacz    what `stillweb replay --ledger` noted
    stillweb cut base more --ledger tests.jsonl -o small.wacz    of `replay base more`: one snapshot, which answers alike
    """
    from stillweb.api import cut

    with progress("cutting") as advance:
        report = cut(snapshots, out, runs=runs, ledgers=ledgers, pictures=pictures, progress=advance)
    if as_json:
        print_json(report.to_json())
        return
    say(report.text())
    click.echo(str(report.path))
