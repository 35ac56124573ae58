"""Scorer of BrowseComp Long Context: a judge grades the answer to the bare problem, as in BrowseComp."""

from __future__ import annotations

from stillweb.harness.scoring import Context, Score, unscored
from stillweb.harness.scoring.grading import GradeError, grade, grader_of, grader_template, own_template
from stillweb.harness.task import Task


def score_browsecomp(task: Task, answer: str | None, context: Context) -> Score:
    """Score with the metric `correct`, 1 or 0, by the judge `options.model` or else GRADER_MODEL.

    The grader sees the bare problem (`meta["problem"]`), never the prompt with its pages. `options.template`
    replaces the packaged prompt. An unreadable answer of the judge makes the score `unparsable`.
    """
    if answer is None or not answer.strip():
        return unscored(task, "zero", "no answer")
    judge, model = grader_of(task, context)
    problem = str(task.meta.get("problem") or task.question)
    template = own_template(task)
    try:
        verdict = grade(judge, model, problem, answer, str(task.reference), template=template)
    except GradeError as error:
        return unscored(task, "unparsable", str(error), fault="judge")
    prompt = "options.template" if template else grader_template()["version"]
    return Score(
        {"correct": float(verdict.correct)},
        "scored",
        {"model": model, "prompt": prompt, "grade": verdict.to_json()},
    )
