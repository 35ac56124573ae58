"""Scorer of BrowseComp and BrowseComp Long Context: a judge grades the answer to the bare problem."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import resources

from stillweb.harness.scoring import Context, MetricInBothModes, Score, score_of, score_without_answer
from stillweb.harness.scoring.grading import (
    Grade,
    GradeError,
    ask_grader,
    grader_of,
    imitations,
    own_template,
    parse_grade,
)
from stillweb.harness.task import Task

_OFFICIAL = re.compile(r"correct: (yes|no)")


@lru_cache(maxsize=1)
def official_texts() -> dict[str, str]:
    """Return the authors' texts: `question`, `template` (the grader's), their `version` and `source`."""
    text = resources.files(__package__).joinpath("grader.json").read_text("utf-8")
    value: dict[str, str] = json.loads(text)
    return value


def wording(_: str) -> dict[str, str]:
    """Return the grader's packaged prompt, with its version and source."""
    texts = official_texts()
    return {name: texts[name] for name in ("version", "source", "template")}


def official_verdict(text: str) -> bool | None:
    """Return the verdict that the official expression finds in a grader's answer, None without one.

    The official scorer takes None for no. It compares the whole match with `yes`, which never holds; meant is
    the group.
    """
    found = _OFFICIAL.search(text)
    return found and found[1] == "yes"


def score_browsecomp(task: Task, answer: str | None, context: Context) -> Score:
    """Score with the metric `correct`, 1 or 0, by the judge `options.model` or else GRADER_MODEL.

    The grader sees the bare problem (`meta["problem"]`), never the prompt with its pages. `options.template`
    replaces the authors' prompt. Faithful reads the answer by the official expression, fixed as any judge's.
    An answer of which neither makes a verdict makes the score `unparsable`.
    """
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    judge, model = grader_of(task, context)
    problem = str(task.meta.get("problem") or task.question)
    own = own_template(task)
    template = own or official_texts()["template"]
    reply = ask_grader(judge, model, problem, answer, str(task.reference), template=template)
    official = official_verdict(reply)
    grade: Grade | None = None
    problems = imitations(answer, template)
    fault = None if problems else "judge"
    try:
        grade = parse_grade(reply, answer)
    except GradeError as error:
        if official is None:
            return score_without_answer(task, "unparsable", str(error), fault=fault)
        problems.append(str(error))
    detail = {
        "model": model,
        "prompt": "options.template" if own else official_texts()["version"],
        "grade": grade and grade.to_json(),
    }
    if grade is None and context.mode == "fixed" and fault:
        detail["fault"] = fault
    both = MetricInBothModes(
        float(bool(official)),
        None if grade is None else float(grade.correct),
        "official takes the first `correct: yes|no`, in small letters and without marks, and else no",
    )
    return score_of({"correct": both}, context, detail, problems)
