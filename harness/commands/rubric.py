from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT, LocalPath
from stillweb.snapshots.words import pluralize


@click.group("rubric")
def command() -> None:
    """Compile and lint side-cars: a task set's scoring rules, compiled from its rubrics, in a file to edit.

    \b
    stillweb rubric compile goal.jsonl -o rubrics.json
    stillweb rubric lint goal.jsonl --rubrics rubrics.json
    """


@command.command("compile", short_help="Compile what can be read by rule.")
@click.argument("tasks")
@click.option("-o", "--out", required=True, type=OUT, help="The file to write.")
def compile_(tasks: str, out: Path) -> int:
    """Compile what can be read by rule; every rule names the sentence it comes from.

    \b
    stillweb rubric compile goal.jsonl -o rubrics.json          exit code 1 on a record that can't be read
    """
    from stillweb.harness.commands.options import read_tasks
    from stillweb.harness.rubric import compile_rubrics, load_rubrics, save_rubrics

    loaded = read_tasks(tasks)
    rubrics = compile_rubrics(loaded)
    if out.is_file() and load_rubrics(str(out)) != rubrics:
        raise click.UsageError(f"{out}: holds other side-cars, perhaps edited ones; name another file")
    save_rubrics(out, rubrics)
    click.echo(f"{out}: {pluralize(len(rubrics), 'side-car')}")
    return 1 if loaded.problems else 0


@command.command("lint", short_help="Say where a rubric can't be scored by.")
@click.argument("tasks")
@click.option("--rubrics", type=LocalPath(exists=True), help="Side-cars to check; compiled ones otherwise.")
@click.option("--notes", is_flag=True, help="Also the sentences that no rule read; they are no findings.")
def lint_(tasks: str, rubrics: str | None, notes: bool) -> int:
    """Say where a rubric can't be scored by: a schema missing, a key undefined, variants that disagree.

    \b
    stillweb rubric lint goal.jsonl --rubrics rubrics.json      exit code 1 on a finding, or a record that can't be read
    """
    from stillweb.harness.commands.options import read_tasks
    from stillweb.harness.curation.lint import lint
    from stillweb.harness.rubric import load_rubrics

    loaded = read_tasks(tasks)
    found = lint(loaded, load_rubrics(rubrics) if rubrics else None, notes=notes)
    for finding in found:
        click.echo(str(finding))
    findings = [finding for finding in found if finding.level != "note"]
    click.echo(pluralize(len(findings), "finding"))
    return 1 if findings or loaded.problems else 0
