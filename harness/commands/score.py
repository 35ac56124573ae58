from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stillweb.harness.commands.options import FILE, FOLDER, OUT, PATH, OptionFor
from stillweb.harness.commands.show import show_summary
from stillweb.harness.console import progress, say
from stillweb.snapshots.words import pluralize

MOST = 10  # attempts named in the output


@click.command("score")
@click.argument("run", required=False, type=FOLDER)
@click.option("--write", is_flag=True, help="Replace the old scores by those that came out differently.")
@click.option(
    "--tasks",
    "source",
    metavar="SET",
    help="Score by this set: other references, scorers or options. Needs -o, or --predictions.",
)
@click.option(
    "--predictions", type=FILE, help="Score saved answers to --tasks instead of RUN: JSONL of id and answer."
)
@click.option(
    "--rubrics", type=PATH, help="Score tables by these rules (`stillweb rubric compile`). Needs -o."
)
@click.option(
    "--grader-template",
    type=FILE,
    help="The prompt of the graders of judge and browsecomp, a text with {question}, {response} and {correct_answer}. Needs -o.",
)
@click.option("--mode", type=click.Choice(["faithful", "fixed"]), help="Scoring of SGI-Bench. Needs -o.")
@click.option(
    "--ignore-case/--no-ignore-case", default=None, help="Ignore capitals in table cells. Needs -o."
)
@click.option(
    "--ask-judge",
    is_flag=True,
    help="Ask judges again, those that GRADER_MODEL and the other variables name now (and pay for it). Needs -o.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1),
    cls=OptionFor,
    needs="--ask-judge",
    help="attempts judged at the same time; 2 by default.",
)
@click.option(
    "-o",
    "--out",
    type=OUT,
    help="The directory for the rescored run; RUN stays as it is. With --predictions NAME.jsonl it is NAME-scored by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    run: Path | None,
    write: bool,
    source: str | None,
    predictions: Path | None,
    ask_judge: bool,
    parallel: int | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Compute every score of RUN anew, from its traces alone, and say which come out differently.

    \b
    stillweb score run1                                    exit code 1 if a score came out differently
    stillweb score run1 --tasks corrected.jsonl -o run1b   the same attempts by other references, scorers, options
    GRADER_MODEL=gpt-5 stillweb score run1 --ask-judge -o run1c      by another judge, which is paid
    stillweb score --tasks goal.jsonl --predictions answers.jsonl    saved answers, with report and certificate
    """
    if predictions is not None:
        if run is not None or source is None or write or ask_judge:
            raise click.UsageError(
                "--predictions goes with --tasks, and not with RUN, --write or --ask-judge"
            )
        return _predictions(
            source, predictions, parallel or 2, out or Path(f"{predictions.stem}-scored"), as_json, options
        )
    if run is None:
        raise click.UsageError("name a RUN, or saved answers with --tasks and --predictions")
    from stillweb.api import score
    from stillweb.harness.results.summary import failed_attempts
    from stillweb.snapshots.errors import GateFailed

    with progress("scoring") as advance:
        done = score(
            run,
            write=write,
            out=out,
            tasks=source,
            ask_judge=ask_judge,
            parallel=parallel or 2,
            progress=advance,
            note=say,
            **options,
        )
    summary = show_summary(done.path, done.certificate, as_json)
    failed = failed_attempts(summary)
    if out is None:
        if failed:
            say(failed)
        return 1 if done.different else 0
    named = ", ".join((*done.different[:MOST], *["…"] * (len(done.different) > MOST)))
    of = pluralize(summary.owed, "attempt")
    say(f"{len(done.different)} of {of} have another score than in {run}{named and f': {named}'}")
    if ask_judge and failed:
        raise GateFailed(
            f"{out}: {failed}; 'stillweb score {out} --ask-judge -o …' asks again where an answer is missing"
        )
    return 0


def _predictions(
    source: str, predictions: Path, parallel: int, out: Path, as_json: bool, options: dict[str, Any]
) -> int:
    """Score saved answers as a run of the agent that gives them; write its report and certificate."""
    from stillweb.api import run as run_tasks
    from stillweb.harness.commands.show import show_run
    from stillweb.harness.runs.display import make_display
    from stillweb.harness.view.export import write_report
    from stillweb.snapshots.errors import GateFailed

    run = run_tasks(
        tasks=source,
        agent=f"predictions:{predictions.absolute()}",
        out=out,
        parallel=parallel,
        display=make_display(),
        note=say,
        **options | {"mode": options["mode"] or "faithful", "ignore_case": bool(options["ignore_case"])},
    )
    _, wrong = show_run(run, as_json)
    say(f"report: {write_report(out)}")
    if wrong:
        raise GateFailed(f"{out}: {wrong}; the same command with another -o scores anew")
    return 0
