"""Helpers of the four SGI-Bench scorers: answer tag, documented variables, judges and their prompts.

Two modes: `faithful`, the official result with its quirks, and `fixed`. Both are computed. The context's mode
decides the metrics, and `detail["differs"]` lists the differences with their reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from stillweb.harness.models.tape import ModelError
from stillweb.harness.scoring import Context, Judge, JudgeFailed
from stillweb.harness.scoring.judging import judge_params
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require

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
    # limits beside the wall clock, for which the authors set none: bytes, bytes, and a number
    "SGI_MEMORY_LIMIT": "",
    "SGI_DISK_LIMIT": "",
    "SGI_PROCESS_LIMIT": "",
}


def variable(context: Context, name: str) -> str:
    return context.env.get(name) or DEFAULTS[name]


def extract_final_answer(text: str) -> str | None:
    """Return the stripped text between the last `<answer>` and the next `</answer>`, None without both."""
    start = text.rfind("<answer>")
    end = text.find("</answer>", start) if start >= 0 else -1
    return text[start + len("<answer>") : end].strip() if end >= 0 else None


def need_judge(task: Task, context: Context) -> Judge:
    """Return the context's judge. Raise UsageError without one."""
    if context.judge is None:
        raise UsageError(
            f"task {task.id}: scorer {task.scorer!r} needs a judge (GRADER_BASE_URL, GRADER_API_KEY)"
        )
    return context.judge


def ask(judge: Judge, prompt: str, model: str, temperature: float, system: str | None = None) -> str:
    """Ask a judge one question, after `system` or else the authors' system prompt. Raise JudgeFailed."""
    first = {"role": "system", "content": packaged_prompts()["system"] if system is None else system}
    try:
        return judge.complete([first, {"role": "user", "content": prompt}], model, temperature)
    except (ModelError, OSError, RuntimeError) as error:
        raise JudgeFailed(str(error) or type(error).__name__) from error


@lru_cache(maxsize=1)
def packaged_prompts() -> dict[str, Any]:
    """Return the benchmark's own prompts: by scorer, of the `parser`, the `system` prompt and answer `form`s."""
    text = resources.files(__package__).joinpath("prompts.json").read_text("utf-8")
    value: dict[str, Any] = json.loads(text)
    return value


def template_of(task: Task, name: str = "judge") -> str | None:
    """Return a task's prompt in `options.template`: a text (the judge's) or {judge, parser}; or None.

    Raise UsageError if it is neither, or has none of the packaged prompt's placeholders.
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


def prompt_template(task: Task, name: str = "judge") -> str:
    """Return the prompt `judge` or `parser` of a task, with its placeholders."""
    text: str = template_of(task, name) or packaged_prompts()[task.scorer if name == "judge" else name]
    return text


def prompt(task: Task, name: str, values: Mapping[str, str]) -> str:
    """Return the prompt `judge` or `parser` of a task with its placeholders filled. Other braces are kept."""
    places = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({places})\}}", lambda found: values[found[1]], prompt_template(task, name))


def parse_answer(task: Task, judge: Judge, model: str, text: str, example: str) -> str:
    """Return the answer rewritten by the parser model (T = 0), which never sees the reference.

    Raise JudgeFailed.
    """
    inside = extract_final_answer(text)
    query = packaged_prompts()["parser_query"].replace("{text}", text if inside is None else inside)
    system = prompt(task, "parser", {"kind": "<class 'str'>", "example": example})
    return ask(judge, query, model, 0.0, system=system)


def question_of(task: Task) -> str:
    """Return the question of the record, without the instructions on the answer's form."""
    return str(task.meta.get("problem") or task.question)


def read_reply(text: str, opening: str, check: Callable[[Any], Any]) -> Any:
    """Return what `check` makes of the JSON in a judge's reply. Raise ValueError if there is none that it takes.

    As the authors do, json-repair reads what stands between the outer brackets. A list without brackets, for
    which their scorer ends in an error, is read from the outer braces. `check` raises ValueError.
    """
    closing = {"[": "]", "{": "}"}[opening]
    parts = [_between(text, opening, closing)]
    if opening == "[":
        parts.append(f"[{_between(text, '{', '}')}]")
    repair = require("json_repair")
    problem = f"no {opening}…{closing} in {' '.join(text.split())[:60]!r}"
    for part in parts:
        if not part.strip("[]{} \n\t"):
            continue
        try:
            return check(repair.loads(part))
        except (ValueError, RecursionError) as error:
            problem = str(error)
    raise ValueError(problem)


def verdicts(reply: str, name: str) -> int:
    """Return how many members `name` stand in a judge's reply. One within a text is none where its quotes are escaped.

    If they are more than were read, the judge may have quoted what it judges without escaping it: of two members
    json-repair takes the last.
    """
    return len(re.findall(rf"""(?<!\\)["']{name}["']\s*:""", reply))


def _between(text: str, opening: str, closing: str) -> str:
    start, end = text.find(opening), text.rfind(closing)
    return text[start : end + 1] if 0 <= start < end else ""


def wording(scorer: str) -> dict[str, str] | None:
    """Return the packaged prompts of a scorer's judges, with their version and source; None without judges."""
    prompts = packaged_prompts()
    if scorer not in prompts:
        return None
    return {name: prompts[name] for name in ("version", "source", scorer, "parser")}


def judge_endpoints(
    scorers: Collection[str], env: Mapping[str, str], default: Mapping[str, Any]
) -> dict[str | None, dict[str, Any]]:
    """Return the endpoints of judges: those of ideas may have their own, and the others have the default.

    SGI_JUDGE_MODEL_n go with SGI_JUDGE_BASE_URL_n, SGI_JUDGE_API_KEY_n and SGI_JUDGE_PARAMS_n.
    """
    found: dict[str | None, dict[str, Any]] = {None: dict(default)}
    if "sgi-idea-generation" not in scorers:
        return found
    for n in (1, 2, 3):
        name, own = f"SGI_JUDGE_MODEL_{n}", judge_params(env, f"SGI_JUDGE_PARAMS_{n}")
        model = env.get(name) or DEFAULTS[name]
        url = env.get(f"SGI_JUDGE_BASE_URL_{n}")
        if url and model in found and found[model]["base_url"] != url:
            raise UsageError(f"{name}: {model} is another judge, too, at another endpoint")
        if url or own:
            place = {"base_url": url, "key_variable": f"SGI_JUDGE_API_KEY_{n}"} if url else {}
            params = {**default.get("params", {}), **own}
            found[model] = {**default, **place, **({"params": params} if params else {})}
    if len(found) == 4 and len(scorers) == 1:
        del found[None]  # no other judge is asked
    return found
