"""BrowseComp's grader: its prompt, and a parser for the fields of its answer."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from stillweb.harness.scoring import GRADED, Context, Judge
from stillweb.harness.task import Task, TaskSet
from stillweb.snapshots.errors import UsageError


class GradeError(Exception):
    """Error for a grader's answer that can't be read; says why and shows its beginning."""


@dataclass(frozen=True, slots=True)
class Grade:
    """Grader's verdict. `confidence` is 0..100, None if no number was given."""

    correct: bool
    extracted_final_answer: str
    reasoning: str
    confidence: int | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of the four fields."""
        return asdict(self)


# Emphasis and list markers around a field name, as models write them.
_MARKS, _ITEM = r"[*_`\"]{0,3}", r"(?:(?:[-*#>]+|[0-9]{1,2}[.)])[ \t]*)?"
_FIELD = r"^[ \t]*" + _ITEM + _MARKS + "%s" + _MARKS + r"[ \t]*:[ \t]*" + _MARKS + r"[ \t]*"
_CORRECT = re.compile(_FIELD % "correct" + r"(?P<said>.*)", re.I | re.M)
# "yes/no", "yes or no", and the prompt's own "yes if they mean the same, …" are no verdict.
_VERDICT = re.compile(r"(yes|no)\b(?!\W*?[/|]|\W+(?:or|if)\b)", re.I)
_NAMES = ("extracted_final_answer", "reasoning", "correct", "confidence")
_NEXT = r"(?=" + "|".join(_FIELD % name for name in _NAMES) + r"|\Z)"


@lru_cache(maxsize=1)
def grader_template() -> dict[str, str]:
    """Return the packaged prompt: `template`, its `version` and `source`."""
    text = resources.files("stillweb.harness.scoring").joinpath("grader.json").read_text("utf-8")
    value: dict[str, str] = json.loads(text)
    return value


def grader_prompt(question: str, response: str, correct_answer: str, template: str | None = None) -> str:
    """Return the grader's prompt. Braces in the texts are kept."""
    text = template or grader_template()["template"]
    values = {"question": question, "response": response, "correct_answer": correct_answer}
    return re.sub(r"\{(question|response|correct_answer)\}", lambda found: values[found[1]], text)


def own_template(task: Task) -> str | None:
    """Return the task's own prompt, `options.template`, or None.

    Raise UsageError if it has no placeholder for the answer or the reference.
    """
    own = task.options.get("template")
    if own is None:
        return None
    if not isinstance(own, str) or "{response}" not in own or "{correct_answer}" not in own:
        raise UsageError(
            f"task {task.id}: options.template must be a text that holds {{response}} and {{correct_answer}}"
        )
    return own


def parse_grade(text: str, graded: str) -> Grade:
    """Parse the grader's answer; the last `correct:` line counts, if no other one says the opposite.

    Raise GradeError if it is no clear yes or no: a verdict may be a quotation of the `graded` answer.
    """
    lines = [found["said"] for found in _CORRECT.finditer(text)]
    verdict = _VERDICT.match(lines[-1]) if lines else None
    if verdict is None:
        shown = " ".join((lines[-1] if lines else text).split())[:80]
        raise GradeError(f"the grader's answer has no line `correct: yes|no`: {shown!r}")
    verdicts = _verdicts(text)
    if len({*verdicts}) > 1:
        raise GradeError("the grader's answer has lines `correct: yes` and `correct: no`")
    if len(verdicts) <= _verdicts(_plain(graded)).count(verdicts[0]):
        raise GradeError(
            f"each `correct: {verdicts[0]}` in the grader's answer may be quoted from what it graded"
        )
    confidence = re.search(r"\d+", _field(text, "confidence"))
    return Grade(
        correct=verdict[1].lower() == "yes",
        extracted_final_answer=_field(text, "extracted_final_answer"),
        reasoning=_field(text, "reasoning"),
        confidence=min(int(confidence[0]), 100) if confidence else None,
    )


def _verdicts(text: str) -> list[str]:
    return [found[1].lower() for line in _CORRECT.finditer(text) if (found := _VERDICT.match(line["said"]))]


def _plain(text: str) -> str:
    """Return a text with letters that look alike (NFKC) as what they imitate, and without those that show nothing."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")


# What judges write, by line or as JSON: a grader's, the steps' and outputs' of SGI-Bench, and its votes.
_JUDGED_RIGHT = re.compile(
    _FIELD % "correct" + r"yes\b|[\"']judg(?:e|e?ment)[\"']\s*:\s*[\"']correct|:\s*\[?\s*Win\s+[AB]\b",
    re.I | re.M,
)
_HEADING = 12  # letters; a shorter one in a prompt ("Question:") stands in honest answers, too


def imitations(graded: str, template: str) -> list[str]:
    """Return a problem for a graded text that holds a judge's verdict, or a heading of the judge's prompt.

    It may be meant to instruct the judge; whether that took it so, its words must show.
    """
    plain = _plain(graded)
    words = " ".join(plain.split()).casefold()
    imitated = [found[0].strip() for found in _JUDGED_RIGHT.finditer(plain)]
    headings = [" ".join(one.split()) for one in re.findall(r"([^\n]*\S)\s*\{\w+\}", template)]
    imitated += [one for one in headings if len(one) >= _HEADING and one.casefold() in words]
    return (
        [
            f"what is graded contains text that imitates its judge ({imitated[0][:80]!r}): read the judge's answer"
        ]
        if imitated
        else []
    )


def _field(text: str, name: str) -> str:
    found = re.search(_FIELD % name + r"(.*?)" + _NEXT, text, re.I | re.M | re.S)
    return found[1].strip() if found else ""


def grader_of(task: Task, context: Context) -> tuple[Judge, str]:
    """Return judge and model for a task: `options.model`, else GRADER_MODEL.

    Raise UsageError without them.
    """
    model = task.options.get("model") or context.env.get("GRADER_MODEL")
    if context.judge is None or not model:
        missing = "a judge" if context.judge is None else "options.model or GRADER_MODEL"
        raise UsageError(f"task {task.id}: scorer {task.scorer!r} needs {missing}")
    return context.judge, model


def grade(
    judge: Judge,
    model: str,
    question: str,
    response: str,
    correct_answer: str,
    *,
    template: str | None = None,
) -> Grade:
    """Ask the judge at temperature 0. Raise GradeError if its answer can't be read."""
    reply = ask_grader(judge, model, question, response, correct_answer, template=template)
    return parse_grade(reply, response)


def ask_grader(
    judge: Judge, model: str, question: str, response: str, correct_answer: str, *, template: str | None
) -> str:
    """Return the judge's answer at temperature 0, as it is."""
    prompt = grader_prompt(question, response, correct_answer, template)
    return judge.complete([{"role": "user", "content": prompt}], model, 0.0)


def with_grader_template(tasks: TaskSet, path: Path) -> TaskSet:
    """Return the set with the text of a file as `options.template` of each task that a grader scores.

    Raise UsageError for a file that is no such template, or if no task is graded.
    """
    try:
        template = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read as a grader's template: {error}") from error
    graded = [task for task in tasks if task.scorer in GRADED]
    if not graded:
        raise UsageError(
            f"{tasks.name}: no task is scored by {' or '.join(GRADED)}, so no grader has a template"
        )
    changed = {task.id: replace(task, options={**task.options, "template": template}) for task in graded}
    for task in changed.values():
        own_template(task)
    return replace(tasks, tasks=tuple(changed.get(task.id, task) for task in tasks))
