from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stillweb.harness.commands.options import FOLDER, SNAPSHOT
from stillweb.harness.console import print_json, progress, say
from stillweb.snapshots.words import pluralize


@click.command("certify")
@click.argument("run", type=FOLDER)
@click.option("--times", default=2, show_default=True, type=click.IntRange(1), help="How often to repeat it.")
@click.option(
    "--parallel", type=click.IntRange(1), help="Attempts at once. [default: two for each core, at most 16]"
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    type=SNAPSHOT,
    help="Where the run's snapshot is on this machine; looked for where RUN names it and beside RUN by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    run: Path, times: int, parallel: int | None, snapshots: tuple[Path | str, ...], as_json: bool
) -> int:
    """Repeat RUN in fresh processes, shuffled and in parallel, and print one hash or what differs first.

    \b
    stillweb certify run1                          exit code 1 if a repetition differs
    stillweb certify run1 --snapshot site.wacz     of a run from another machine
    """
    from stillweb.api import certify
    from stillweb.harness.agents.command import unset_notes
    from stillweb.harness.results.kept_certificate import kept_hash
    from stillweb.harness.results.summary import describe_left_out, failed_attempts, summarise
    from stillweb.harness.runs.run_files import RunFiles

    files = RunFiles(run)
    settings, stands_on = files.manifest()
    for note in unset_notes(settings.agent, (stands_on.get("agent") or {}).get("pass_env", ())):
        say(note)
    before = kept_hash(run)
    with progress("repeating") as advance:
        outcome = certify(run, times=times, parallel=parallel, snapshot=snapshots, progress=advance)
    if as_json:
        print_json({**asdict(outcome), "holds": outcome.holds})
    else:
        click.echo(outcome.hash)
        for line in outcome.differences:
            click.echo(line)
        if outcome.holds and before not in (None, outcome.hash):
            click.echo(f"the run's earlier certificate, {before}, was made by another version of the code")
        summary = summarise(run)
        for sentence in filter(None, (*describe_left_out(files, summary), failed_attempts(summary))):
            click.echo(sentence)  # a run that repeats may still be incomplete
        if outcome.holds:
            click.echo(f"{pluralize(times, 'repetition')} in fresh processes: the same")
    return 0 if outcome.holds else 1
