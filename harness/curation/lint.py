"""Lint of side-cars, before scores depend on them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stillweb.harness.rubric.rules import compile_rubric, may_decide_score
from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.rubric.tables import parse_reference
from stillweb.harness.scoring import Context
from stillweb.harness.scoring.table import normalise_rows, score_table
from stillweb.harness.task import Task
from stillweb.snapshots.words import pluralize


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of the linter. An `error` makes its base task's scores wrong or impossible; a `warning` may."""

    base: str
    check: str
    level: Literal["error", "warning", "note"]
    message: str

    def __str__(self) -> str:
        return f"{self.base}: {self.level}: {self.check}: {self.message}"


def lint(
    tasks: Iterable[Task], rubrics: Mapping[str, Rubric] | None = None, *, notes: bool = False
) -> list[Finding]:
    """Return findings for every table task, by base task. With `rubrics` None, lint the compiled side-cars.

    A sentence that no rule read is a warning if it may decide a score; `notes` adds the others.
    """
    groups: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.scorer == "table":
            groups[task.base or task.id].append(task)
    findings: list[Finding] = []
    for base, variants in groups.items():
        findings += _variants(base, variants)
        for number, task in enumerate(variants):
            own = (rubrics or {}).get(task.id)  # a form's own side-car precedes its base's, as in scoring
            rubric = own or (rubrics or {}).get(base) or compile_rubric(task)
            lacking = rubrics is not None and not own and base not in rubrics
            if lacking and "rubric" not in task.options:
                message = "no side-car; it would be compiled anew"
                findings.append(Finding(base, "side-car missing", "error", message))
            if number == 0 or own:
                findings += _side_car(base, rubric, variants, edited=rubrics is not None)
            findings += _reference(base, task, rubric)
    if rubrics is not None:
        known = {task.id for variants in groups.values() for task in variants} | set(groups)
        for base in sorted(set(rubrics) - known):
            findings.append(Finding(base, "unused side-car", "warning", "no task of the set has this base"))
    return [finding for finding in dict.fromkeys(findings) if notes or finding.level != "note"]


def _side_car(base: str, rubric: Rubric, variants: list[Task], *, edited: bool) -> Iterator[Finding]:
    if "separators" in rubric.assumed:
        message = "the rubric gives one text for fields and records; assumed: | and a line break"
        yield Finding(base, "separators alike", "error", message)
    if "columns" in rubric.assumed:
        yield Finding(base, "schema missing", "error", "the rubric names no columns; they were numbered")
    if "row_key" in rubric.assumed:
        key = ", ".join(rubric.row_key)
        yield Finding(base, "key undefined", "error", f"the rubric names no row key; assumed: {key}")
    if "ordered" in rubric.assumed:
        yield Finding(
            base, "order undefined", "warning", "the rubric doesn't say whether order counts; assumed: yes"
        )
    for sentence in rubric.unread:
        if may_decide_score(sentence):
            message = f"{sentence!r} may decide a score, but no rule covers it; add it to the side-car"
            yield Finding(base, "unread rule", "warning", message)
        else:
            yield Finding(base, "unread rule", "note", sentence)
    if edited:
        texts = " ".join(_strings([task.meta.get("rubric") for task in variants]))
        compiled = {link for task in variants for link in compile_rubric(task).sources.values()}
        for path, sentence in rubric.sources.items():
            if sentence and sentence not in compiled and sentence not in texts:
                yield Finding(
                    base, "stale link", "warning", f"{path} links to a sentence no rubric has: {sentence!r}"
                )


def _reference(base: str, task: Task, rubric: Rubric) -> Iterator[Finding]:
    text = task.reference if isinstance(task.reference, str) else ""
    table = parse_reference(text, rubric)
    if table is None or (not table.rows and table.form != "none"):
        yield Finding(base, "reference unreadable", "error", f"{task.id}: no table in the reference")
        return
    widths = {len(row) for row in table.rows} - {len(rubric.columns)}
    if widths:
        wide = f"rows of {sorted(widths)} cells, {len(rubric.columns)} columns"
        yield Finding(base, "reference width", "error", f"{task.id}: {wide}")
        return
    rows = normalise_rows(table.rows, rubric, False)
    keys = [tuple(row[rubric.columns.index(name)] for name in rubric.row_key) for row in rows]
    if len(set(keys)) != len(keys):
        yield Finding(
            base, "key not unique", "error", f"{task.id}: two rows of the reference have the same key"
        )
    if any(cell == "" for row in rows for cell in row):
        yield Finding(
            base, "empty reference cell", "warning", f"{task.id}: an empty cell is never counted as right"
        )
    cardinality = task.meta.get("oracle_output_cardinality")
    if isinstance(cardinality, int) and cardinality != len(rows):
        yield Finding(
            base,
            "cardinality",
            "warning",
            f"{task.id}: {pluralize(cardinality, 'row')} announced, {len(rows)} in the reference",
        )
    own = score_table(task, text, Context(rubrics={task.base or task.id: rubric})).metrics["em"]
    if own != 1.0:
        yield Finding(base, "self-score", "error", f"{task.id}: the reference itself scores em {own}")


def _variants(base: str, variants: list[Task]) -> Iterator[Finding]:
    """Yield differences between variants of one base, which must share reference and rules.

    Languages may word the rules differently.
    """
    first = variants[0]
    for task in variants[1:]:
        if _squeezed(task.reference) != _squeezed(first.reference):
            yield Finding(
                base, "variants disagree", "error", f"{first.id} and {task.id} have different references"
            )
        if task.meta.get("language") != first.meta.get("language"):
            continue
        a, b = compile_rubric(first), compile_rubric(task)
        for name in ("columns", "row_key", "ordered", "fields", "header"):
            if getattr(a, name) != getattr(b, name):
                yield Finding(
                    base, "variants disagree", "error", f"{first.id} and {task.id} differ in {name}"
                )


def _squeezed(value: Any) -> Any:
    return re.sub(r"[ \t]+", " ", value).strip() if isinstance(value, str) else value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        yield ", ".join(item for item in value if isinstance(item, str))
        for item in value:
            yield from _strings(item)
