"""What the four SGI-Bench scorers share: the answer tag, the documented variables, judges asked again.

Two modes: `faithful`, the official result with its quirks, and `fixed`. Both are computed; the context's mode
decides the metrics, and `detail["differs"]` lists where the two part, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from stillweb.harness.scoring import MEASURED, Context, Judge, Score, Status
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError

# Variables and their defaults, as the evaluation guide of SGI-Bench names them.
DEFAULTS: Mapping[str, str] = {
    "SGI_DR_GRADER_MODEL": "o4-mini",
    "SGI_DE_GRADER_MODEL": "o4-mini",
    "SGI_PARSER_MODEL": "gpt-4.1-mini",
    "SGI_JUDGE_MODEL_1": "gpt-5.1-2025-11-13",
    "SGI_JUDGE_MODEL_2": "gemini-3-pro-preview",
    "SGI_JUDGE_MODEL_3": "anthropic/claude-sonnet-4.5",
    "SGI_EMBEDDING_MODEL": "all-MiniLM-L6-v2",
    "SGI_CONDA_ENV": "dryexp",
    "SGI_EXECUTION_TIMEOUT": "300",
    "SGI_DRY_EXPERIMENT_DATA_DIR": "",
}


def variable(context: Context, name: str) -> str:
    """A documented variable of the context, else its default."""
    return context.env.get(name) or DEFAULTS[name]


def extract_final_answer(text: str) -> str | None:
    """What stands between the last `<answer>` and the first `</answer>` after it, stripped; None without both."""
    start = text.rfind("<answer>")
    end = text.find("</answer>", start) if start >= 0 else -1
    return text[start + len("<answer>") : end].strip() if end >= 0 else None


def need_judge(task: Task, context: Context) -> Judge:
    """The context's judge; UsageError if it has none."""
    if context.judge is None:
        raise UsageError(
            f"task {task.id}: scorer {task.scorer!r} needs a judge (GRADER_BASE_URL, GRADER_API_KEY)"
        )
    return context.judge


def ask(judge: Judge, prompt: str, model: str, temperature: float, system: str | None = None) -> str:
    """One question to a judge."""
    messages = [{"role": "user", "content": prompt}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return judge.complete(messages, model, temperature)


@lru_cache(maxsize=1)
def packaged_prompts() -> dict[str, str]:
    """The packaged prompts by scorer, that of the `parser`, their `version` and `source`."""
    text = resources.files("stillweb.harness.scoring.sgi").joinpath("prompts.json").read_text("utf-8")
    value: dict[str, str] = json.loads(text)
    return value


def template_of(task: Task, name: str = "judge") -> str | None:
    """The task's own prompt: `options.template`, a text (the judge's) or an object of `judge` and `parser`.

    UsageError when it is neither, or holds none of the places that the packaged prompt has.
    """
    given = task.options.get("template")
    if given is None or isinstance(given, str):
        given = {} if given is None else {"judge": given}
    if not isinstance(given, dict) or not given.keys() <= {"judge", "parser"}:
        raise UsageError(f"task {task.id}: options.template must be a text, or an object of judge and parser")
    own = given.get(name)
    if own is None:
        return None
    places = re.findall(r"\{\w+\}", packaged_prompts()[task.scorer if name == "judge" else name])
    if not isinstance(own, str) or not any(place in own for place in places):
        raise UsageError(f"task {task.id}: options.template: {name} must hold {', '.join(places)}")
    return own


def prompt(task: Task, name: str, values: Mapping[str, str]) -> str:
    """The prompt `judge` or `parser` for a task, its places filled in; braces in the texts stay as they are."""
    text = template_of(task, name) or packaged_prompts()[task.scorer if name == "judge" else name]
    places = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({places})\}}", lambda found: values[found[1]], text)


def parse_answer(task: Task, judge: Judge, model: str, text: str, example: str) -> str:
    """The parser model's rewriting of an answer, given an example of the form and never the reference (T = 0)."""
    return ask(
        judge,
        f"Text:\n{text}\n",
        model,
        0.0,
        system=prompt(task, "parser", {"kind": "text", "example": example}),
    )


def json_part(text: str, opening: str, closing: str) -> Any:
    """The JSON between the first `opening` and the last `closing` bracket. ValueError if there is none.

    Trailing commas are forgiven, for models write them; NaN and Infinity become texts; nothing is ever evaluated.
    """
    start, end = text.find(opening), text.rfind(closing)
    if start < 0 or end < start:
        raise ValueError(f"no {opening}…{closing} in {' '.join(text.split())[:60]!r}")
    part = text[start : end + 1]
    try:
        try:
            return json.loads(part, strict=False, parse_constant=str)
        except ValueError:
            return json.loads(re.sub(r",(\s*[\]}])", r"\1", part), strict=False, parse_constant=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Both:
    """A metric in both modes, and why they differ where they do."""

    faithful: float | None
    fixed: float | None
    why: str = ""


def score_of(
    metrics: Mapping[str, Both], context: Context, status: Status, detail: dict[str, Any], problems: list[str]
) -> Score:
    """The score in the context's mode. A metric that neither mode could give leaves the status `unparsable`.

    Where the modes part in what is measured (seconds), it is listed under `measured`: it differs each time.
    """
    differs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for name, both in metrics.items():
        if both.faithful != both.fixed:
            entry = {"metric": name, "faithful": both.faithful, "fixed": both.fixed, "why": both.why}
            differs[name in MEASURED].append(entry)
    values = {
        name: both.faithful if context.mode == "faithful" else both.fixed for name, both in metrics.items()
    }
    told: dict[str, Any] = {"mode": context.mode, "differs": differs[False], **detail}
    if differs[True]:
        told["measured"] = {**told.get("measured", {}), "differs": differs[True]}
    if problems:
        told["problems"] = problems
    if status == "scored" and all(value is None for value in values.values()):
        status = "unparsable"
    return Score(values, status, told)
