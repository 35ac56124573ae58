"""`stillweb compare`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from stillweb.harness.console import print_json, say


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
    from stillweb.harness.compare.compare import compare_runs
    from stillweb.harness.compare.gates import check_gates, parse_gate

    if metric is not None and not metric.strip():
        raise click.UsageError("--metric names no metric")
    for gate in gates:
        parse_gate(gate)  # report a misspelt gate before the work
    whole = bool(gates) or (b is None and page is not None)  # a gate or a page needs every part
    compared = compare_runs(a, b, metric=metric, seed=seed, whole=whole)
    for reason in compared.reasons:
        say(reason)
    if as_json:
        print_json(compared.to_json())
    else:
        click.echo(str(compared))
    if not compared.comparisons:
        return
    if page is not None:
        from stillweb.harness.view.export import export_file

        runs = [a] if b is None else [a, b]
        start = "/compare" + (f"?metric={quote(metric)}" if metric else "") if b else ""
        click.echo(str(export_file(runs, page, start=start, title="Comparison").resolve()))
    check_gates(compared.comparisons, gates)
