from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import FOLDER, OUT
from stillweb.harness.commands.show import show_summary


@click.command("fork")
@click.argument("run", type=FOLDER)
@click.argument("attempt")
@click.option(
    "--step",
    required=True,
    type=click.IntRange(1),
    help="The first model call by the other model; calls are counted from 1.",
)
@click.option("--model", required=True, help="The other model, of the same provider or endpoint API.")
@click.option(
    "-o",
    "--out",
    required=True,
    type=OUT,
    help="The new run's directory; an unfinished fork in it is continued.",
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="Make an attempt that ended in an error, or whose scoring failed, again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    run: Path, attempt: str, step: int, model: str, out: Path, retry_failed: bool, as_json: bool
) -> None:
    """Repeat ATTEMPT of RUN from its tape up to a step, and go on from there with another model.

    \b
    stillweb fork run1 penguins.1 --step 4 --model gpt-5-mini -o run2      attempt 1 at the task penguins
    stillweb compare run1 run2
    """
    from stillweb.api import fork
    from stillweb.harness.results.summary import failed_attempts
    from stillweb.harness.runs.display import make_display
    from stillweb.snapshots.errors import GateFailed

    made = fork(
        run, attempt, step=step, model=model, out=out, retry_failed=retry_failed, display=make_display()
    )
    if failed := failed_attempts(show_summary(made.path, made.certificate, as_json)):
        raise GateFailed(f"{out}: {failed}; 'stillweb report {out}' shows all of it")
