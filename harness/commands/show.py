"""Output of a run's scores, for `run` and `score`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.console import decimals, print_json, table
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.api import Run
    from stillweb.harness.results.summary import Summary
    from stillweb.harness.task import Task
    from stillweb.harness.trace import Trace

MOST_METRICS = 8  # metrics shown for each attempt
FEW = 3  # attempts that are listed in any case: the summary keeps to ten lines


def show_summary(run: Path, certificate: dict[str, Any], as_json: bool, *, each: bool = True) -> Summary:
    """Print the scores of `each` attempt, or of a few, the means with their spread, and the certificate ({}: not certified)."""
    from stillweb.harness.results.summary import describe_left_out, summarise, value_of
    from stillweb.harness.runs.run_files import RunFiles

    scores: dict[tuple[str, int], tuple[str, dict[str, float | None]]] = {}

    def note(trace: Trace) -> None:
        if (score := trace.last("score")) is not None:
            scores[trace.task_id, trace.attempt] = score["status"], score["metrics"]

    summary = summarise(run, on_trace=note)
    files = RunFiles(run)
    epochs = files.manifest()[0].epochs
    attempts = [
        (task, number, *scores.get((task.id, number), ("unfinished", {})))
        for task in files.tasks()
        for number in range(1, epochs + 1)
    ]
    spreads = {
        name: _spread(
            [(task, value_of(metrics, task.scorer, name)) for task, *_, metrics in attempts if task.scorer in giving]
        )
        for name, giving in summary.given_by.items()
        if name in summary.means
    }  # fmt: skip
    if as_json:
        by_name = {name: {"spread": one, "standard_error": error} for name, (one, error) in spreads.items()}
        print_json({**summary.to_json(measured=True), "spreads": by_name, "certificate": certificate or None})
        return summary
    named = [name for name in summary.means if not name.startswith(("raw_", "forgiven_"))]
    every = named or list(summary.means)
    names = every[:MOST_METRICS]
    means = [summary.means[name] for name in names]
    partly = any(mean.scored < mean.of for mean in means)
    listed = each or len(attempts) <= FEW
    rows = [
        [f"{task.id}.{number}", status, *(_number(value_of(metrics, task.scorer, name)) for name in names)]
        for task, number, status, metrics in attempts
        if listed
    ]
    title, blank = (["attempt", "status"], [""]) if listed else ([""], [])
    rows.append(["mean of all", *blank, *(_number(mean.mean_of_all) for mean in means)])
    if partly:
        rows.append(["mean of scored", *blank, *(_number(mean.mean) for mean in means)])
    rows.append(["spread", *blank, *(_number(spreads[name][0]) for name in names)])
    rows.append(["standard error", *blank, *(_number(spreads[name][1]) for name in names)])
    click.echo(table([*title, *names], rows))
    if partly:
        click.echo("mean of all counts an attempt without a score as 0, mean of scored leaves it out")
    if others := every[MOST_METRICS:]:
        figures = ", ".join(f"{name} {_number(summary.means[name].mean_of_all)}" for name in others)
        click.echo(f"mean of all, of the other metrics: {figures}")
    statuses = ", ".join(f"{count} {name}" for name, count in summary.statuses.items() if count)
    click.echo(
        f"{pluralize(summary.owed, 'attempt')}: {statuses}; {pluralize(summary.tool_calls, 'tool call')}, "
        f"{pluralize(summary.misses, 'miss')}"
        + (
            f", {pluralize(summary.failures, 'call')} that failed as while recording"
            if summary.failures
            else ""
        )
    )
    if summary.expected_wrong:
        click.echo(
            f"{pluralize(summary.presumed, 'answer')} presumed; "
            f"expected number of wrong answers: {summary.expected_wrong:.2f}"
        )
    for sentence in describe_left_out(files, summary):
        click.echo(sentence)
    for name, mean in summary.measured.items():
        click.echo(f"{name} {_number(mean.mean)}, mean of {mean.scored} measured on this machine, in no hash")
    click.echo(
        f"certificate {certificate['hash']}"
        if certificate
        else "no certificate: some scores come out differently; --write replaces them"
    )
    return summary


def show_run(run: Run, as_json: bool, *, each: bool = True) -> tuple[Summary, str]:
    """Print a run's scores; return their summary, and what failed or could not be read, or ""."""
    from stillweb.harness.results.summary import failed_attempts, unread_records
    from stillweb.harness.runs.run_files import RunFiles

    summary = show_summary(run.path, run.certificate, as_json, each=each)
    return summary, failed_attempts(summary) or unread_records(RunFiles(run.path))


def _spread(attempts: Sequence[tuple[Task, float | None]]) -> tuple[float | None, float | None]:
    """Return the standard deviation of a metric over the attempts that should have it, and the standard error of its mean.

    The error is clustered by base task (Miller, arXiv:2411.00640, 2.2): attempts of one task, and forms of one base
    task, are not independent. A missing value counts as 0. Either is None with fewer than two.
    """
    values = [value or 0.0 for _, value in attempts]
    if len(values) < 2:
        return None, None
    mean = math.fsum(values) / len(values)
    off: dict[str, list[float]] = {}
    for (task, _), value in zip(attempts, values, strict=True):
        off.setdefault(task.base or task.id, []).append(value - mean)
    if len(off) < 2:
        return stdev(values), None
    squares = math.fsum(math.fsum(own) ** 2 for own in off.values())
    error = math.sqrt(squares * len(off) / (len(off) - 1)) / len(values)
    return stdev(values), round(error, 12)  # clusters with one mean leave sums of 1e-16 instead of 0


def _number(value: float | None) -> str:
    return "-" if value is None else decimals(value, 3)
