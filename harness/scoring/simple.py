"""Scorers for custom task sets: exact text, a judge, and an expression in the final page."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

from stillweb.harness.rubric.normalise import as_decimal
from stillweb.harness.rubric.spelling import fold, normalise_text
from stillweb.harness.scoring import Context, Score, score_without_answer
from stillweb.harness.scoring.grading import (
    GradeError,
    grade,
    grader_of,
    grader_template,
    imitations,
    own_template,
)
from stillweb.harness.task import Task
from stillweb.snapshots.errors import StillwebError, UsageError


def score_exact(task: Task, answer: str | None, context: Context) -> Score:
    """Score an answer as right if it equals the reference, or one of a list, after the common clean-up.

    Options: `fold_case` (default true), `numeric` (compare as exact numbers; default true for references that
    are JSON numbers), `tolerance` (with numeric: largest absolute difference, as text), `last_line` (default
    false: judge only the last line that isn't blank). Metric: `exact`.
    """
    references = task.reference if isinstance(task.reference, list) else [task.reference]
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in references)
    options = _options(task, fold_case=True, numeric=numbers, tolerance="0", last_line=False)
    if "tolerance" in task.options and not options["numeric"]:
        raise UsageError(
            f"task {task.id}: options.tolerance needs options.numeric: texts are the same or not"
        )
    options["tolerance"] = _tolerance(task, str(options["tolerance"]))
    if "tolerance" in task.options and all(
        as_decimal(_plain(_text(one), True)) is None for one in references
    ):
        raise UsageError(
            f"task {task.id}: options.tolerance: the reference {_text(task.reference)[:80]!r} is not a number; leave out its unit"
        )
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    given = answer.strip().splitlines()[-1] if options["last_line"] else answer
    found = [_same(given, _text(reference), options) for reference in references]
    detail = {
        "normalised": _plain(given, options["fold_case"]),
        "reference": [_plain(_text(reference), options["fold_case"]) for reference in references],
    }
    return Score({"exact": float(any(found))}, "scored", detail)


def score_judged(task: Task, answer: str | None, context: Context) -> Score:
    """Score an answer as right if a judge says so, by BrowseComp's grader contract.

    Options: `model` (else the variable GRADER_MODEL), `template` (replaces the packaged prompt). Metric:
    `correct`. An unreadable answer of the judge makes the score `unparsable`, never wrong.
    """
    _options(task, model=None, template=None)
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    judge, model = grader_of(task, context)
    question = str(task.meta.get("grading_question") or task.question)
    template = own_template(task) or grader_template()["template"]
    problems = imitations(answer, template)
    try:
        verdict = grade(judge, model, question, answer, _text(task.reference), template=template)
    except GradeError as error:
        return score_without_answer(task, "unparsable", str(error), fault=None if problems else "judge")
    detail = {"model": model, "grade": verdict.to_json()}
    return Score(
        {"correct": float(verdict.correct)},
        "scored",
        {**detail, "problems": problems} if problems else detail,
    )


def score_page(task: Task, answer: str | None, context: Context) -> Score:
    """Score an attempt as right if a JavaScript expression holds in its final page (`options.expression`).

    With a `reference` other than null the expression's value must equal it as JSON; without, it must be true.
    Without a final page the status is `zero`. An expression that throws makes it `unparsable`, with the
    message.
    """
    expression = _options(task, expression=None)["expression"]
    if not isinstance(expression, str) or not expression.strip():
        raise UsageError(f"task {task.id}: scorer 'page' needs options.expression")
    if context.page is None:
        return score_without_answer(task, "zero", "the attempt has no final page")
    try:
        value = context.page(expression)
    except StillwebError as error:
        return score_without_answer(task, "unparsable", f"the expression failed: {error}")
    right = value is True if task.reference is None else _json(value) == _json(task.reference)
    return Score({"page": float(right)}, "scored", {"expression": expression, "value": value})


def _options(task: Task, **defaults: Any) -> dict[str, Any]:
    if unknown := sorted(set(task.options) - set(defaults)):
        raise UsageError(f"task {task.id}: unknown option {unknown[0]!r}; known are {', '.join(defaults)}")
    options = {name: task.options.get(name, default) for name, default in defaults.items()}
    for name, default in defaults.items():
        if isinstance(default, bool) and not isinstance(options[name], bool):
            raise UsageError(f"task {task.id}: options.{name}: must be true or false, not {options[name]!r}")
    return options


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(text: str, fold_case: bool) -> str:
    return fold(normalise_text(text)) if fold_case else normalise_text(text)


def _same(given: str, reference: str, options: dict[str, Any]) -> bool:
    a, b = _plain(given, options["fold_case"]), _plain(reference, options["fold_case"])
    if options["numeric"] and (x := as_decimal(a)) is not None and (y := as_decimal(b)) is not None:
        # fractions: a difference of decimals is rounded to the 28 digits of their context
        return abs(Fraction(x) - Fraction(y)) <= Fraction(options["tolerance"])
    return a == b


def _tolerance(task: Task, text: str) -> Decimal:
    found = as_decimal(text)
    if found is None or found < 0:
        raise UsageError(f"task {task.id}: options.tolerance: {text!r} is not a number from 0 on")
    return found


def _json(value: Any) -> str:
    return json.dumps(_numbers(value), sort_keys=True)


def _numbers(value: Any) -> Any:
    """Return the value with numbers as JavaScript knows them: 5.0 is 5."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    return value
