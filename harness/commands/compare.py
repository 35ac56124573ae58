from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from stillweb.harness.commands.options import FOLDER, OUT
from stillweb.harness.console import print_json, say


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=FOLDER)
@click.option("--metric", help="The metric to compare; by default the one that ranks each task.")
@click.option("--seed", default=0, show_default=True, help="Of the resampling.")
@click.option(
    "--fail-on", "gates", multiple=True, help="A gate: 'regressed', or such as 'difference<-0.02', 'worse>0'."
)
@click.option("--html", "page", type=OUT, help="Write a page with what got worse side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(
    runs: tuple[Path, ...],
    metric: str | None,
    seed: int,
    gates: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> None:
    """Compare RUNS with the first, paired by task and clustered by base task; of one run, its goal with its constraint forms.

    \b
    stillweb compare run1 run2 --html worse.html
    stillweb compare run1 run2 run3                       run2 and run3, each against run1
    stillweb compare run1 run2 --fail-on regressed        exit code 1 if run2 is worse
    stillweb compare run1                                 goal against constraint, repeats that differ, errors by base
    """
    from stillweb.harness.compare.compare import compare_runs
    from stillweb.harness.compare.gates import check_gates, parse_gate

    if metric is not None and not metric.strip():
        raise click.UsageError("--metric names no metric")
    for gate in gates:
        parse_gate(gate)  # report a misspelt gate before the work
    first, others = runs[0], runs[1:] or (None,)
    whole = bool(gates) or (not runs[1:] and page is not None)  # a gate or a page needs every part
    found = [compare_runs(first, other, metric=metric, seed=seed, whole=whole) for other in others]
    for other, compared in zip(others, found, strict=True):
        for reason in compared.reasons:
            say(reason)
        if not as_json:
            if runs[2:]:
                click.echo(f"{other} against {first}:")
            click.echo(str(compared))
    if as_json:
        named = [{"run": str(run), **one.to_json()} for run, one in zip(others, found, strict=True)]
        print_json({"against": str(first), "runs": named} if runs[2:] else found[0].to_json())
    if not any(compared.comparisons for compared in found):
        return
    if page is not None:
        from stillweb.harness.view.export import export_file

        start = "/compare" + (f"?metric={quote(metric)}" if metric else "") if runs[1:] else ""
        written = export_file(runs, page, start=start, title="Comparison").resolve()
        click.echo(str(written), err=as_json)  # standard output holds one JSON document
    for compared in found:
        check_gates(compared.comparisons, gates)
