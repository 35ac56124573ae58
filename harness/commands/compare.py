"""`stillweb compare`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.console import decimals, print_json, say, table
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.harness.compare.compare import Comparison

MOST_TOLD = 10  # tasks that got worse and are shown with their differing answers and requests


@click.command("compare")
@click.argument("a", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("b", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--metric", help="The metric to compare; by default the one that ranks each task.")
@click.option("--seed", default=0, show_default=True, help="Of the resampling.")
@click.option(
    "--fail-on", "gates", multiple=True, help="A gate: 'regressed', or such as 'difference<-0.02', 'worse>0'."
)
@click.option(
    "--html", "page", type=click.Path(path_type=Path), help="Write a page with what got worse side by side."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(
    a: Path,
    b: Path | None,
    metric: str | None,
    seed: int,
    gates: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> None:
    """Compare run B with run A, paired by task and clustered by base task; of one run, its goal with its constraint forms.

    \b
    stillweb compare run1 run2 --html worse.html
    stillweb compare run1 run2 --fail-on regressed        exit code 1 if B is worse
    stillweb compare run1                                 goal against constraint, repeats that differ, errors by base
    """
    from stillweb.harness.compare.compare import (
        asked_otherwise,
        compare,
        compare_variants,
        differences,
        errors_by_base,
        flips,
        parts_of,
        parts_of_sets,
        read_outcomes,
        worse_by_others,
    )
    from stillweb.harness.compare.gates import check_gates, parse_gate
    from stillweb.snapshots.errors import UsageError

    if metric is not None and not metric.strip():
        raise click.UsageError("--metric names no metric")
    for gate in gates:
        parse_gate(gate)  # report a misspelt gate before the work
    first, second = read_outcomes(a), read_outcomes(b) if b is not None else []
    parts = parts_of(first, second, metric)
    found: list[Comparison] = []
    untold: list[UsageError] = []
    for part in parts:
        try:
            if b is None:
                one = compare_variants(part.a, part.metric, seed=seed)
            else:
                one = compare(part.a, part.b, part.metric, seed=seed)
            found.append(replace(one, metric=part.name))
        except UsageError as error:
            untold.append(error)
    repeated = len({o.task_id for o in first if o.attempt > 1 and o.status != "unfinished"})
    # With gates, two runs must be comparable in every part; within one run, not every task needs two forms.
    if b is None:
        may_lack = bool(found) or (repeated > 0 and not gates and page is None)
    else:
        may_lack = bool(found) and not gates
    if untold and not may_lack:
        raise untold[0]
    within: dict[str, Any]
    if b is None:
        within = {
            "repeated": repeated,
            "flips": {task: values for part in parts for task, values in flips(part.a, part.metric).items()},
            "errors_by_base": [asdict(one) for part in parts for one in errors_by_base(part.a, part.metric)],
        }
    else:
        within = {"differs": list(differences(a, b))}
        for reason in untold:
            say(str(reason))
    partial = (*parts_of_sets(a, b), *(asked_otherwise(a, b) if b is not None else ()))
    within["parts"] = list(partial)
    if as_json:
        others = {"others": [one.to_json() for one in found[1:]]} if found[1:] else {}
        print_json({**(found[0].to_json() if found else {"metric": parts[0].name}), **within, **others})
    else:
        if within.get("differs"):
            click.echo(f"the runs differ in what they stand on: {', '.join(within['differs'])}")
        for sentence in partial:
            click.echo(sentence)
        for one in found:
            _told(one, ("constraint", "goal") if b is None else ("A", "B"))
            if b is not None:
                for sentence in worse_by_others(one, first, second):
                    click.echo(sentence)
        if not found:
            click.echo(f"{parts[0].name}: no task has both a goal and a constraint form")
        for task_id, values in within.get("flips", {}).items():
            shown = ", ".join("-" if value is None else f"{value:.3f}" for value in values)
            click.echo(f"repeats differ: {task_id}: {shown}")
        if within.get("repeated"):
            click.echo(
                f"repeats: {counted(within['repeated'], 'task')} attempted again, {len(within['flips'])} with differing scores"
            )
        for cluster in within.get("errors_by_base", ()):
            how = ", ".join(f"{count} {status}" for status, count in cluster["statuses"].items())
            click.echo(
                f"errors: {cluster['base']}: {cluster['wrong']} of {counted(cluster['attempts'], 'attempt')} ({how})"
            )
    if not found:
        return
    if page is not None:
        from stillweb.harness.report.comparison import write_comparison

        click.echo(str(write_comparison(found, page, within.get("differs", ()), partial).resolve()))
    check_gates(found, gates)


def _told(comparison: Comparison, sides: tuple[str, str]) -> None:
    rows = [
        [p.task_id, decimals(p.a, 3), decimals(p.b, 3), decimals(p.delta, 3, "+"), p.trace_b]
        for p in comparison.worse
    ]
    if rows:
        click.echo(table(["worse", *sides, "change", f"trace of {sides[1]}"], rows))
    if sides == ("A", "B"):  # two forms of a task differ in question and answer anyway
        from stillweb.harness.compare.compare import apart

        for pair in comparison.worse[:MOST_TOLD]:
            click.echo(apart(comparison, pair))
    interval = comparison.no_interval
    if comparison.interval:
        low, high = comparison.interval
        interval = f"95 % interval {decimals(low, 4, '+')} to {decimals(high, 4, '+')}"
    click.echo(
        f"{comparison.metric}: {decimals(comparison.mean_a, 4)} to {decimals(comparison.mean_b, 4)}, difference "
        f"{decimals(comparison.difference, 4, '+')} ({interval}), p {decimals(comparison.p, 4)} "
        f"({comparison.test}), sign test {decimals(comparison.sign_p, 4)}; {counted(len(comparison.pairs), 'task')} in "
        f"{counted(comparison.clusters, 'cluster')}, {len(comparison.worse)} worse, {len(comparison.better)} better"
    )
    for line in comparison.told_left_out:
        click.echo(f"left out of {comparison.metric}: {line}")
