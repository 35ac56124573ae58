"""Scorer of SGI-Bench's deep research: exact match, and the share of steps that a judge finds correct."""

from __future__ import annotations

from typing import Any

from stillweb.harness.benchmarks.sgi.common import (
    ask,
    extract_final_answer,
    need_judge,
    parse_answer,
    prompt,
    prompt_template,
    question_of,
    read_reply,
    variable,
    verdicts,
)
from stillweb.harness.rubric.normalise import as_decimal
from stillweb.harness.rubric.spelling import fold, normalise_text
from stillweb.harness.scoring import (
    Context,
    JudgeFailed,
    MetricInBothModes,
    Score,
    score_of,
    score_without_answer,
)
from stillweb.harness.scoring.grading import imitations
from stillweb.harness.task import Task
from stillweb.snapshots.words import pluralize

NUMBER_EXAMPLE, TEXT_EXAMPLE = "0.25", "T cell and B cell"


def score_deep_research(task: Task, answer: str | None, context: Context) -> Score:
    """Score with the metrics em (0 or 1) and step_accuracy (share of steps judged correct).

    step_accuracy is None if the judge failed or can't be read. A judgement other than correct or incorrect is
    no judgement; the official scorer, and so faithful, counts it as incorrect.

    Models: SGI_PARSER_MODEL rewrites the answer (it sees an example of the form, never the reference),
    SGI_DR_GRADER_MODEL judges the steps; both at temperature 0. Faithful: without an answer tag the whole
    text is the answer, texts are equal only to the letter, and a failed parser's answer is the one before it.
    Fixed: without a tag there is no answer; spellings and numbers of equal value are equal; a failed parser
    leaves open an answer that isn't right as it stands.
    """
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    judge = need_judge(task, context)
    gold: str = task.reference["answer"]
    extracted = extract_final_answer(answer)
    shown = answer if extracted is None else extracted
    example = NUMBER_EXAMPLE if _is_number(gold) else TEXT_EXAMPLE
    problems = imitations(answer, prompt_template(task))
    failed = False
    parser, model = variable(context, "SGI_PARSER_MODEL"), variable(context, "SGI_DR_GRADER_MODEL")
    parsed: str | None = None
    try:
        parsed = parse_answer(task, judge, parser, shown, example)
    except JudgeFailed as error:
        failed = True
        problems.append(f"the judge {parser}, which rewrites the answer, failed: {error}")
    faithful = gold in (shown, parsed)
    fixed: bool | None = extracted is not None and any(
        _equal(gold, text) for text in (extracted, parsed) if text is not None
    )
    why = "fixed joins spellings of one value" if fixed else "without an answer tag fixed sees no answer"
    if extracted is not None and parsed is None and not fixed:
        fixed, why = None, "the parser, which failed, could have made it right"

    texts = {"question": question_of(task), "steps": "\n".join(task.reference["steps"]), "answer": gold}
    asked = prompt(task, "judge", {**texts, "solution": answer, "final_answer": shown})
    steps: list[dict[str, Any]] = []
    share: float | None = None
    unclear = ""
    try:
        reply = ask(judge, asked, model, 0.0)
        steps = read_reply(reply, "[", _judged_steps)
        share = sum(step["judge"] == "correct" for step in steps) / len(steps)
        others = [n for n, step in enumerate(steps, 1) if step["judge"] not in ("correct", "incorrect")]
        if others:
            unclear = f"said neither correct nor incorrect of step {others[0]}"
        elif verdicts(reply, "judge") > len(steps):
            unclear = f"said more than the {pluralize(len(steps), 'judgement')} that can be read"
    except JudgeFailed as error:
        problems.append(f"the judge {model} failed: {error}")
    except ValueError as error:
        problems.append(f"the judge {model} gave no list of steps: {error}")
    if unclear:
        problems.append(f"the judge {model} {unclear}")
    detail: dict[str, Any] = {"extracted": extracted, "parsed": parsed, "steps": steps, "judge": model}
    if failed or share is None or unclear:
        detail["fault"] = "judge"
    metrics = {
        "em": MetricInBothModes(float(faithful), None if fixed is None else float(fixed), why),
        "step_accuracy": MetricInBothModes(
            share,
            None if unclear else share,
            "official takes any other word for incorrect, and the last of two judgements",
        ),
    }
    return score_of(metrics, context, detail, problems)


def _judged_steps(steps: Any) -> list[dict[str, Any]]:
    if not isinstance(steps, list) or not steps:
        raise ValueError("no list, or an empty one")
    for number, step in enumerate(steps, 1):
        if not isinstance(step, dict) or "judge" not in step:
            raise ValueError(f"step {number} has no judgement")
    return steps


def _is_number(text: str) -> bool:
    """Return True if Python's float() reads the text, as in the official scorer."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _equal(gold: str, text: str) -> bool:
    a, b = fold(normalise_text(gold)), fold(normalise_text(text))
    if (x := as_decimal(a)) is not None and (y := as_decimal(b)) is not None:
        return x == y
    return a == b
