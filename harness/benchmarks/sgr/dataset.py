"""SGR-Bench (arXiv 2605.22219): 50 problems in goal (`-g`) and constraint forms, English and Chinese."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from stillweb.harness.datasets.records import Record, RecordError
from stillweb.harness.task import Task

FIELDS = frozenset(
    (
        "task_id", "domain", "autonomy_type", "oracle_output_cardinality", "instruction", "start_url",
        "output_format", "oracle_answer", "metadata", "rubric", "all_involved_urls"
    )
)  # fmt: skip


def recognise(data: dict[str, Any]) -> bool:
    return "instruction" in data and any(name in data for name in ("oracle_answer", "task_id", "rubric"))


def build(record: Record) -> Task:
    """Return the task of a record; `metadata` and `rubric` may be objects or JSON text.

    The question is the instruction and the output format; whether the start URL is given the set leaves to the
    protocol. Tasks of one base in two languages get different ids.
    """
    task_id = record.text("task_id")
    instruction = record.text("instruction")
    output_format = _output_format(record)
    start_url = record.text("start_url", required=False) or None
    language = "zh" if _is_chinese(record, instruction) else "en"
    question = (
        f"{instruction}\n\n{output_format}"
        if output_format and output_format not in instruction
        else instruction
    )
    cardinality = record.data.get("oracle_output_cardinality")
    if isinstance(cardinality, str) and cardinality.strip().isdigit():
        cardinality = int(cardinality)
    if cardinality is not None and (not isinstance(cardinality, int) or isinstance(cardinality, bool)):
        raise RecordError("oracle_output_cardinality", "must be a whole number")
    meta: dict[str, Any] = {
        "set": "sgr",
        "task_id": task_id,
        "variant": "goal" if task_id.endswith("-g") else "constraint",
        "language": language,
        "domain": record.text("domain", required=False),
        "autonomy_type": record.text("autonomy_type", required=False),
        "oracle_output_cardinality": cardinality,
        "output_format": output_format,
        "metadata": record.value("metadata", dict, {}),
        "rubric": record.value("rubric", dict, {}),
        "all_involved_urls": record.value("all_involved_urls", (list, dict), []),
    }
    return Task(
        id=task_id if language == "en" else f"{task_id}@zh",
        question=question,
        reference=_oracle(record),
        scorer="table",
        meta=meta,
        base=task_id.removesuffix("-g"),
        start_url=start_url,
    )


def _output_format(record: Record) -> str:
    value = record.data.get("output_format")
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    raise RecordError("output_format", f"must be text, not {type(value).__name__}")


def _oracle(record: Record) -> str:
    value = record.data.get("oracle_answer")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    answer = record.text("oracle_answer")
    if not answer.strip():
        raise RecordError("oracle_answer", "is empty")
    return answer


def _is_chinese(record: Record, instruction: str) -> bool:
    parts = PurePath(record.file).parts
    if "data_zh" in parts:
        return True
    if "data_en" in parts:
        return False
    return len(re.findall(r"[\u4e00-\u9fff]", instruction)) * 5 > len(instruction)
