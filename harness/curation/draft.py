"""Drafts of side-cars by a model, for rubrics that the rules can't read. A person edits and keeps them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from stillweb.harness.rubric.rules import compile_rubric
from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.scoring import Judge
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput

_REQUEST = """\
Compile the scoring rules below into one JSON object, and answer with that object only.
Members: "columns" (list of names, in order), "row_key" (the columns that identify a row), "ordered" (whether the
order of rows counts), "fields" (column -> {"type": "string"|"integer"|"decimal"|"date"|"id_list", "uppercase":
true|false, "aliases": {variant: value}, "units": {variant: unit}}), "sources" (path of each rule you set, such as
"fields.NAME.aliases" -> the sentence you read it from, copied to the letter).
Set nothing that no sentence says. Never invent an alias. Don't answer the task itself.

Required output: %s
Scoring rules: %s
"""


def draft_rubric(task: Task, judge: Judge, model: str) -> Rubric:
    """Ask `judge` for a side-car of `task`. Raise DamagedInput saying what is wrong with its answer.

    Rules read by `compile_rubric` stay; the model adds others. Each rule of a column must have a source, and
    each source must quote the rubric to the letter, or the draft is refused: a rule without a sentence is an
    invention. The model never sees the reference answer.
    """
    base = compile_rubric(task)
    rubric = task.meta.get("rubric")
    rules = json.dumps(rubric, ensure_ascii=False, indent=1)
    prompt = _REQUEST % (task.meta.get("output_format", ""), rules)
    answer = judge.complete([{"role": "user", "content": prompt}], model, 0.0)
    drafted = _object(answer)
    cited = drafted.get("sources", {})
    taken = {name: drafted[name] for name in base.assumed if name in drafted}
    merged: dict[str, Any] = base.to_json() | taken
    merged["fields"] = {**drafted.get("fields", {}), **base.to_json()["fields"]}
    merged["sources"] = {**drafted.get("sources", {}), **base.sources}
    merged["assumed"] = [name for name in base.assumed if name not in taken or name not in cited]
    merged["origin"] = "model"
    result = Rubric.from_json(merged, "the model's draft")
    said = _plain(" ".join(_all_text(rubric)))
    for path, sentence in cited.items():
        if not _plain(sentence) or _plain(sentence) not in said:
            raise DamagedInput(f"the model's draft: {path} cites a sentence that the rubric doesn't have")
    for name in sorted(set(drafted.get("fields", {})) - set(base.fields)):
        if not any(path == f"fields.{name}" or path.startswith(f"fields.{name}.") for path in cited):
            raise DamagedInput(f"the model's draft: fields.{name} cites no sentence")
    return replace(result, unread=base.unread)


def _object(answer: str) -> dict[str, Any]:
    start, end = answer.find("{"), answer.rfind("}")
    try:
        value = json.loads(answer[start : end + 1])
    except (ValueError, RecursionError) as error:
        raise DamagedInput(f"the model's draft: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedInput("the model's draft: not a JSON object")
    for name in ("fields", "sources"):
        if not isinstance(value.get(name, {}), dict):
            raise DamagedInput(f"the model's draft: {name}: must be an object")
    if not all(isinstance(text, str) for text in value.get("sources", {}).values()):
        raise DamagedInput("the model's draft: sources: must hold sentences")
    return value


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _all_text(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _all_text(item)]
    if isinstance(value, list):
        return [text for item in value for text in _all_text(item)]
    return [value] if isinstance(value, str) else []
