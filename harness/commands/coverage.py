from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from stillweb.harness.commands.options import PATH, SNAPSHOT, several
from stillweb.harness.console import make_search_ready, print_json, progress, say, say_damage, table
from stillweb.snapshots.words import pluralize

# name of a gate -> the checks of the audit that trip it, unless they are notes
CHECKS = {
    "leak": ("leak",),
    "gold-missing": ("gold-missing", "gold-unread"),
    "expiry": ("date", "relative-date", "certificate", "cookie"),
}


@click.command("coverage")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("--tasks", "source", metavar="SET", help="A task set: look up what it names.")
@click.option(
    "--run", "run", type=PATH, help="A run, or one trace of it: look up what it asked its tools for."
)
@click.option(
    "--synthetic-search",
    is_flag=True,
    help="Count a search as answered if an index of the frozen texts answers it, as in `run --synthetic-search`.",
)
@click.option(
    "--check-references",
    is_flag=True,
    help="Also audit the set: reference values that no frozen text holds, questions and pages that give an answer away, dates that will pass.",
)
@click.option(
    "--today",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With --check-references: the day to check dates against; today by default.",
)
@click.option(
    "--fail-on",
    metavar="CHECKS",
    multiple=True,
    callback=several,
    help=f"With --check-references, which it implies: exit code 1 on a finding of these, with commas: {', '.join(CHECKS)}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    snapshots: tuple[Path | str, ...],
    source: str | None,
    run: Path | None,
    synthetic_search: bool,
    check_references: bool,
    today: datetime | None,
    fail_on: list[str] | None,
    as_json: bool,
) -> int:
    """Say which URLs, views, PDFs and searches SNAPSHOTS can answer, of those that a task set names.

    \b
    stillweb coverage site.wacz --tasks goal.jsonl        exit code 1 if something is missing, or a record unreadable
    stillweb coverage site.wacz --tasks goal.jsonl --fail-on leak,gold-missing       a gate before a set is published
    stillweb coverage site-2.wacz --run runs/one          what that run asked for, of another snapshot
    """
    from stillweb.api import coverage
    from stillweb.api import open as open_snapshot
    from stillweb.harness.commands.options import read_tasks

    if (source is None) == (run is None):
        raise click.UsageError("give --tasks or --run")
    gates = fail_on or []
    if unknown := [name for name in gates if name not in CHECKS]:
        raise click.UsageError(f"--fail-on: no check {unknown[0]!r}; known are {', '.join(CHECKS)}")
    check_references = check_references or bool(gates)
    if check_references and run is not None:
        raise click.UsageError(
            "--check-references and --fail-on go with --tasks: a run's trace has no reference answers"
        )
    tasks = read_tasks(source) if source is not None else None
    with open_snapshot(*snapshots) as snapshot:
        say_damage(snapshot)
        if synthetic_search:
            make_search_ready(snapshot)
        with progress("looking up") as advance:
            found = coverage(
                snapshot,
                tasks=tasks,
                run=run,
                synthetic_search=synthetic_search,
                check_references=check_references,
                today=today.date() if today is not None else None,
                progress=advance,
            )
    findings = found.findings
    tripped = {
        name: sum(one.check in CHECKS[name] and one.level != "note" for one in findings) for name in gates
    }
    code = 1 if found.lacking or found.refused or any(tripped.values()) else 0
    for name, count in tripped.items():
        if count:
            say(f"--fail-on {name}: {pluralize(count, 'finding')}")
    if as_json:
        print_json(found.to_json())
        return code
    rows = [[need.task_id, need.kind, need.verdict, need.what, "; ".join(need.notes)] for need in found.needs]
    if rows:
        click.echo(table(["task", "what", "verdict", "address or query", "notes"], rows))
    for finding in findings:
        click.echo(str(finding))
    for task_id in found.unknown_tasks:
        click.echo(f"{task_id}: names no address, so nothing can be said about it")
    if check_references and all(finding.check in ("certificate", "cookie") for finding in findings):
        click.echo("every gold cell is in a text of the snapshot; no answer is given away; no date will pass")
    doubtful = f", {len(found.doubtful)} of them with a note" if found.doubtful else ""
    needs = f"{len(found.needs) - len(found.missing)} of {len(found.needs)} needs answered"
    click.echo(f"{needs if found.needs else 'the tasks name no need'}{doubtful}; snapshot {found.snapshot}")
    return code
