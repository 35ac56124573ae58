"""Remarks on a run that its figures don't show; the same in the terminal and on the page."""

from __future__ import annotations

from stillweb.harness.results.summary import Summary
from stillweb.harness.runs.display import one_line
from stillweb.harness.runs.run_files import RunFiles
from stillweb.snapshots.words import counted


def left_out(files: RunFiles, summary: Summary) -> list[str]:
    """Return the remarks as sentences without a full stop. Failures are reported by `failed_attempts`."""
    told = []
    if fork := files.manifest()[0].fork:
        told.append(
            f"forked from attempt {fork['attempt']} at {fork['task']} of the run {fork['certificate'][:12]}: "
            f"{fork['model']} went on from step {fork['step']}"
        )
    if summary.part_of:
        told.append(f"the figures are of {part(len(files.tasks()), summary.part_of)}")
    if unread := unread_records(files):
        told.append(f"{unread}: in no figure here")
    if again := files.made_again():
        told.append(
            f"{counted(again, 'failed attempt')} made again; what failed is kept in the run's folder failed"
        )
    if summary.cut_off:
        told.append(f"{counted(summary.cut_off, 'answer')} of the model cut off by its limit of tokens")
    if summary.supposed:
        rules = ", ".join(f"{name} of {counted(n, 'task')}" for name, n in sorted(summary.supposed.items()))
        told.append(f"supposed, for the rubric does not say it: {rules} (`stillweb rubric lint` names them)")
    if summary.unjudged:
        name, why = summary.unjudged[0]
        of = f"{len(summary.unjudged)} of {counted(summary.owed, 'attempt')}"
        told.append(
            f"in {of} the judge's answer can't be read ({name}: {one_line(why)}); `run --retry-failed` asks it again"
        )
    return told


def unread_records(files: RunFiles) -> str:
    """Return how many records of a run's task set could not be read, as a phrase; "" if none."""
    refused: int = files.manifest()[1].get("refused", 0)
    return f"{counted(refused, 'record')} of the task set could not be read" if refused else ""


def part(taken: int, of: int) -> str:
    """Return the phrase for the part of its task set that a run takes."""
    return f"{taken} of the {counted(of, 'task')} of the set (--only, --limit)"


def failed_attempts(summary: Summary) -> str:
    """Return how many attempts failed, with the first of them; "" if none."""
    if not summary.failed:
        return ""
    name, why = summary.failed[0]
    return f"{len(summary.failed)} of {counted(summary.owed, 'attempt')} failed ({name}: {one_line(why)})"
