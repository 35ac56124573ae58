"""SGI-Bench: deep research, idea generation, dry and wet experiments, distinguished by their fields.

Some releases have Python literals in text fields; `ast.literal_eval` parses them, and no code is run.
"""

from __future__ import annotations

import re
from typing import Any

from stillweb.harness.benchmarks.sgi.common import packaged_prompts
from stillweb.harness.datasets.records import Record, RecordError
from stillweb.harness.task import Task

TESTS = 5
_STEP = re.compile(r"\w\s*=\s*<[^>]+>\(")


def recognise(data: dict[str, Any]) -> bool:
    return _kind(data) is not None


def _kind(data: dict[str, Any]) -> str | None:
    if "main_code" in data and "incomplete_functions" in data:
        return "dry-experiment"
    if "core_idea" in data or "related_work_test" in data:
        return "idea-generation"
    if "steps" in data and "question" in data:
        return "deep-research"
    if "question" in data and isinstance(data.get("answer"), str) and _STEP.search(data["answer"]):
        return "wet-experiment"
    return None


def build(record: Record) -> Task:
    """Return the task of a record from any of the four sets.

    Its question ends with the form of the answer, and `meta["system"]` is the system prompt, both as the
    authors send them. Judges are shown `meta["problem"]`, the bare question.
    """
    kind = _kind(record.data)
    if kind is None:
        raise RecordError("", "no task of SGI-Bench")
    question = record.text("question")
    reference = _BUILDERS[kind](record)
    given = record.data.get("idx", record.data.get("id"))
    if given is None:
        raise RecordError("idx", "is missing")
    meta: dict[str, Any] = {
        name: record.data[name] for name in ("discipline", "direction", "type") if name in record.data
    }
    prompts = packaged_prompts()
    form: str = prompts["form"][f"sgi-{kind}"]
    meta |= {"problem": question, "system": prompts["system"]}
    return Task(
        id=str(given),
        question=question if question.endswith(form) else question + form,
        reference=reference,
        scorer=f"sgi-{kind}",
        meta={"set": f"sgi-{kind}", **meta},
        base=str(given),
        options=dict(record.value("options", dict, {})),
    )


def _deep_research(record: Record) -> dict[str, Any]:
    steps = record.value("steps", list, [])
    if not all(isinstance(step, str) for step in steps):
        raise RecordError("steps", "must be a list of texts")
    answer = record.data.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)
    if not isinstance(answer, str):
        raise RecordError("answer", "must be text")
    return {"answer": answer, "steps": steps}


_IDEA_OBJECTS = (
    "related_work",
    "existing_solutions",
    "related_work_test",
    "implementation_steps",
    "evaluation_metrics",
)
_IDEA_TEXTS = (
    "core_idea", "challenge", "limitation", "motivation", "task_objective", "data", "expected_outcome"
)  # fmt: skip


def _idea(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {name: record.value(name, (dict, list), {}) for name in _IDEA_OBJECTS}
    fields |= {name: record.text(name, required=False) for name in _IDEA_TEXTS}
    # The raw value is kept, too: the official scorer splits texts into characters (see idea.py).
    for name in ("keywords", "implementation_order"):
        fields[name] = record.value(name, (list, tuple), [])
        fields[f"{name}_raw"] = record.data.get(name, [])
    return fields


def _dry(record: Record) -> dict[str, Any]:
    functions = record.value("incomplete_functions", list, [])
    if not functions or not all(isinstance(name, str) for name in functions):
        raise RecordError("incomplete_functions", "must be a list of function names")
    return {
        "data_code": record.text("data_code", required=False),
        "main_code": record.text("main_code"),
        "incomplete_main_code": record.text("incomplete_main_code"),
        "incomplete_functions": functions,
        "tests": [
            {"data": record.text(f"unit_test_{i}_data"), "output": record.text(f"unit_test_{i}_output")}
            for i in range(TESTS)
        ],
    }


def _wet(record: Record) -> dict[str, Any]:
    return {"answer": record.text("answer")}


FIELDS = frozenset(
    (
        *("idx", "id", "question", "answer", "steps", "discipline", "direction", "type", "options"),
        *_IDEA_OBJECTS,
        *_IDEA_TEXTS,
        *("keywords", "implementation_order"),
        *("data_code", "main_code", "incomplete_main_code", "incomplete_functions"),
        *(f"unit_test_{i}_{part}" for i in range(TESTS) for part in ("data", "output")),
    )
)

_BUILDERS = {
    "deep-research": _deep_research,
    "idea-generation": _idea,
    "dry-experiment": _dry,
    "wet-experiment": _wet,
}
