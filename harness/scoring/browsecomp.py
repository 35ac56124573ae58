"""BrowseComp Long Context: graded as BrowseComp is, by a judge, on the bare problem."""

from __future__ import annotations

from stillweb.harness.scoring import Context, Score, unscored
from stillweb.harness.scoring.grading import GradeError, grade, grader_of, grader_template, own_template
from stillweb.harness.task import Task


def score_browsecomp(task: Task, answer: str | None, context: Context) -> Score:
    """Metric `correct`, 1 or 0. The judge's model is `options.model`, else the variable GRADER_MODEL.

    The grader sees the bare problem (`meta["problem"]`), never the prompt with its pages. `options.template`
    takes the place of the packaged prompt. A judge's nonsense makes the score `unparsable`.
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
