"""Generic task sets: one object per line with a question, an answer or a reference table, and a scorer.

Members: `question` (required), `id`, `answer` or `reference`, `table` (list of rows, or text), `columns`,
`row_key`, `ordered`, `fields` (a side-car), `scorer` (default: table if there is a table, else exact),
`options`, `base`, `start_url`, `urls`, `meta`. A record written by `Task.to_json` reads back as itself.
"""

from __future__ import annotations

import hashlib
from typing import Any

from stillweb.harness.datasets.records import Record, RecordError
from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput

_TEXTS = ("question", "scorer", "base", "start_url")
_SIDE_CAR = ("columns", "row_key", "ordered", "fields")
FIELDS = frozenset((*_TEXTS, *_SIDE_CAR, "id", "answer", "reference", "table", "options", "urls", "meta"))


def recognise(data: dict[str, Any]) -> bool:
    """Return True if a record is of this kind: it has a question."""
    return "question" in data


def build(record: Record) -> Task:
    """Return the task of a record. RecordError names a missing, unknown or wrong member."""
    data = record.data
    if unknown := sorted(set(data) - FIELDS):
        raise RecordError(unknown[0], "unknown field (the set's own facts go into `meta`)")
    question = record.text("question")
    meta = record.value("meta", dict, {})
    options = dict(record.value("options", dict, {}))
    if "urls" in data:
        meta = {**meta, "urls": record.value("urls", list)}
    answers = [name for name in ("answer", "reference", "table") if data.get(name) is not None]
    if len(answers) > 1:
        raise RecordError(answers[1], f"given beside {answers[0]!r}; one reference is enough")
    reference = data.get(answers[0]) if answers else None
    scorer = record.text("scorer", required=False) or ("table" if "table" in data else "exact")
    if "table" in data:
        reference = _table(data["table"])
    if "table" in data or any(name in data for name in _SIDE_CAR):
        options.setdefault("rubric", _side_car(record))
    if reference is None and scorer != "page" and ":" not in scorer:
        raise RecordError("answer", f"is missing, and scorer {scorer!r} needs one")
    if scorer in ("exact", "judge"):
        _check_answers(answers[0], reference, scorer)
    given = data.get("id")
    task_id = str(given) if given is not None else hashlib.sha256(question.encode()).hexdigest()[:16]
    return Task(
        id=task_id,
        question=question,
        reference=reference,
        scorer=scorer,
        meta=meta,
        base=record.text("base", required=False) or None,
        start_url=record.text("start_url", required=False) or None,
        options=options,
    )


def _check_answers(name: str, reference: Any, scorer: str) -> None:
    """Raise RecordError for a reference that no answer can match, which would give everyone 0."""
    accepted = reference if isinstance(reference, list) else [reference]
    if not accepted or any(isinstance(one, str) and not one.strip() for one in accepted):
        raise RecordError(name, "names no answer")
    if scorer == "exact" and not all(isinstance(one, str | int | float) for one in accepted):
        raise RecordError(name, "scorer 'exact' needs a text, a number or a list of them")


def _table(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise RecordError("table", "must be text or a list of rows")
    for number, row in enumerate(value):
        for cell in row:
            if not isinstance(cell, str | int) or isinstance(cell, bool):
                raise RecordError(f"table[{number}]", "cells must be texts or whole numbers")
            if "|" in str(cell) or "\n" in str(cell):
                raise RecordError(f"table[{number}]", "a cell may hold neither | nor a line break")
    return "\n".join("|".join(str(cell) for cell in row) for row in value) or "NONE"


def _side_car(record: Record) -> dict[str, Any]:
    columns = record.value("columns", list)
    if columns is None:
        raise RecordError("columns", "a table needs the names of its columns")
    members = {name: record.data[name] for name in _SIDE_CAR if name in record.data}
    members.setdefault("row_key", columns[:1])
    try:
        return Rubric.from_json(members, "table").to_json() | {"origin": "person"}
    except DamagedInput as error:
        raise RecordError("", str(error)) from error
