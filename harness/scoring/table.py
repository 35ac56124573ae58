"""Table scorer of SGR-Bench (arXiv 2605.22219), exact in fractions.

item_f1 = 2·C_item / (N_gold + N_pred), N_gold = rows·k, N_pred = Σ max(k, len(row))
row_f1  = 2·C_row / (R_gold + R_pred)
order accuracy = rightly ordered pairs of shared rows / all such pairs, 0 below two shared rows
em = all rows right, none more, and in the required order
Rows are aligned by their key alone; of rows with one key the first can match and all count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stillweb.harness.rubric.normalise import normalise_cell
from stillweb.harness.rubric.rules import compile_rubric
from stillweb.harness.rubric.sidecar import Rubric, as_rubric
from stillweb.harness.rubric.tables import LEVELS, Level, Table, parse_reference, parse_table
from stillweb.harness.scoring import Context, Score
from stillweb.harness.task import Task

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class TableScore:
    """The four metrics and their counts. `pairs[j]` is the gold row of predicted row j, or None."""

    item_f1: Fraction
    row_f1: Fraction
    order_accuracy: Fraction
    em: int
    right_items: int
    gold_items: int
    predicted_items: int
    right_rows: int
    gold_rows: int
    predicted_rows: int
    ordered_pairs: int
    all_pairs: int
    pairs: tuple[int | None, ...]

    def metrics(self) -> dict[str, float | None]:
        return {
            "em": float(self.em),
            "item_f1": float(self.item_f1),
            "row_f1": float(self.row_f1),
            "order_accuracy": float(self.order_accuracy),
        }


def compare_tables(
    gold: Sequence[Row], predicted: Sequence[Row], key: Sequence[int], ordered: bool
) -> TableScore:
    """Score rows of cells that are already comparable by `==`.

    `key` are the columns (from 0) that identify a row. An empty cell is never right. Gold rows have one
    width k; predicted rows may have any.
    """
    width = len(gold[0]) if gold else max((len(row) for row in predicted), default=0)
    pairs = _align(gold, predicted, key)
    right_items = right_rows = 0
    for row, place in zip(predicted, pairs, strict=True):
        if place is None:
            continue
        right = sum(a == b != "" for a, b in zip(row, gold[place], strict=False))
        right_items += right
        right_rows += right == width == len(row)
    gold_items = len(gold) * width
    predicted_items = sum(max(width, len(row)) for row in predicted)
    shared = [place for place in pairs if place is not None]
    all_pairs = len(shared) * (len(shared) - 1) // 2
    ordered_pairs = _ordered_pairs(shared)
    complete = right_rows == len(gold) == len(predicted)
    return TableScore(
        item_f1=_f1(right_items, gold_items, predicted_items),
        row_f1=_f1(right_rows, len(gold), len(predicted)),
        order_accuracy=Fraction(ordered_pairs, all_pairs) if all_pairs else Fraction(0),
        em=int(complete and (not ordered or ordered_pairs == all_pairs)),
        right_items=right_items,
        gold_items=gold_items,
        predicted_items=predicted_items,
        right_rows=right_rows,
        gold_rows=len(gold),
        predicted_rows=len(predicted),
        ordered_pairs=ordered_pairs,
        all_pairs=all_pairs,
        pairs=tuple(pairs),
    )


def _ordered_pairs(places: Sequence[int]) -> int:
    """Return the number of pairs in ascending order, by bisection: 10,000 rows have 50 million pairs."""
    before: list[int] = []
    ordered = 0
    for place in places:
        smaller = bisect_left(before, place)
        ordered += smaller
        before.insert(smaller, place)
    return ordered


def _f1(right: int, gold: int, predicted: int) -> Fraction:
    # An empty answer to an empty reference is right.
    return Fraction(2 * right, gold + predicted) if gold + predicted else Fraction(1)


def _align(gold: Sequence[Row], predicted: Sequence[Row], key: Sequence[int]) -> list[int | None]:
    """Match the n-th predicted row with a key to the n-th gold row with it; an empty key matches no row."""
    places: defaultdict[tuple[str, ...], deque[int]] = defaultdict(deque)
    for place, row in enumerate(gold):
        places[tuple(row[i] for i in key)].append(place)
    pairs: list[int | None] = []
    for row in predicted:
        wanted = tuple(row[i] if i < len(row) else "" for i in key)
        free = places.get(wanted) if any(wanted) else None
        pairs.append(free.popleft() if free else None)
    return pairs


def normalise_rows(rows: Sequence[Row], rubric: Rubric, fold_case: bool) -> list[tuple[str, ...]]:
    """Return the rows with each cell normalised by its column's rule; extra cells have no rule."""
    rules = [rubric.fields.get(name) for name in rubric.columns]
    width = len(rules)
    return [
        tuple(normalise_cell(cell, rules[i] if i < width else None, fold_case) for i, cell in enumerate(row))
        for row in rows
    ]


def score_table(task: Task, answer: str | None, context: Context) -> Score:
    """Score a table answer at three levels; the plain metric names are the canonical level.

    `task.reference` is the oracle's text in the required form. The side-car comes from `context.rubrics` by
    id or base, else from `task.options["rubric"]`, else it is compiled from `task.meta`. `fold_case` of the
    context is recorded in the detail; the forgiven level always folds.
    """
    rubric = rubric_of(task, context)
    reference = task.reference if isinstance(task.reference, str) else ""
    gold = parse_reference(reference, rubric)
    if gold is None or (not gold.rows and gold.form != "none"):
        problem = "the reference answer can't be read as a table"
        return _empty(None, "unparsable", {"problems": [problem], "fault": "reference"})
    widths = {len(row) for row in gold.rows} - {len(rubric.columns)}
    if widths:
        problem = f"the reference has rows of {sorted(widths)} cells for {len(rubric.columns)} columns"
        return _empty(None, "unparsable", {"problems": [problem], "fault": "reference"})
    if answer is None:
        return _empty(0.0, "zero", {"problems": ["no answer"]})

    # in this order: the first metric ranks runs
    metrics: dict[str, float | None] = dict.fromkeys(TABLE_METRICS)
    exact: dict[str, dict[str, str] | None] = {}
    detail: dict[str, Any] = {
        "fold_case": context.fold_case,
        "rubric": rubric.digest,
        "assumed": list(rubric.assumed),
        "columns": list(rubric.columns),
        "row_key": list(rubric.row_key),
        "ordered": rubric.ordered,
        "exact": exact,
    }
    for level in LEVELS:
        result = _at_level(gold, answer, rubric, level, context.fold_case)
        prefix = "" if level == "canonical" else f"{level}_"
        values = dict.fromkeys(_NAMES) if result is None else result[0].metrics()
        metrics.update({prefix + name: values[name] for name in _NAMES})
        exact[level] = None if result is None else {name: str(getattr(result[0], name)) for name in _NAMES}
        if level == "canonical" and result is not None:
            detail.update(_explain(gold, *result, rubric=rubric, fold_case=context.fold_case))
    if metrics["em"] is None:
        return Score(metrics, "unparsable", detail | {"problems": ["the answer can't be read as a table"]})
    empty = not answer.strip() and bool(gold.rows)
    return Score(metrics, "zero" if empty else "scored", detail)


_NAMES = ("em", "item_f1", "row_f1", "order_accuracy")
TABLE_METRICS = (*_NAMES, *(f"raw_{name}" for name in _NAMES), *(f"forgiven_{name}" for name in _NAMES))


def rubric_of(task: Task, context: Context) -> Rubric:
    for name in (task.id, task.base):
        if name is not None and name in context.rubrics:
            return as_rubric(context.rubrics[name])
    return compile_rubric(task)


def _at_level(
    gold: Table, answer: str, rubric: Rubric, level: Level, fold_case: bool
) -> tuple[TableScore, Table, list[tuple[str, ...]]] | None:
    table = parse_table(answer, rubric, level)
    if table is None:
        return None
    key = [rubric.columns.index(name) for name in rubric.row_key]
    if level == "raw":
        reference, rows = list(gold.rows), list(table.rows)
    else:
        folded = fold_case or level == "forgiven"
        reference = normalise_rows(gold.rows, rubric, folded)
        rows = normalise_rows(table.rows, rubric, folded)
    return compare_tables(reference, rows, key, rubric.ordered), table, rows


def _explain(
    gold: Table,
    result: TableScore,
    table: Table,
    rows: list[tuple[str, ...]],
    *,
    rubric: Rubric,
    fold_case: bool,
) -> dict[str, Any]:
    """Return details with the cells row by row: the answer's rows, then the gold rows missing from it."""
    reference = normalise_rows(gold.rows, rubric, fold_case)
    cells: list[list[dict[str, Any]]] = []
    places: list[dict[str, Any]] = []
    for index, (given, row, place) in enumerate(zip(table.rows, rows, result.pairs, strict=True)):
        line = []
        for column in range(max(len(rubric.columns), len(given))):
            value = given[column] if column < len(given) else None
            inside = column < len(rubric.columns)
            wanted = gold.rows[place][column] if place is not None and inside else None
            right = (
                place is not None
                and inside
                and column < len(row)
                and row[column] == reference[place][column] != ""
            )
            line.append(
                {
                    "column": rubric.columns[column]
                    if inside
                    else f"extra {column - len(rubric.columns) + 1}",
                    "value": value,
                    "normalised": row[column] if column < len(row) else None,
                    "reference": wanted,
                    "right": right,
                }
            )
        cells.append(line)
        places.append({"answer": index, "reference": place})
    for place in sorted(set(range(len(gold.rows))) - set(result.pairs)):
        cells.append(
            [
                {"column": name, "value": None, "normalised": None, "reference": cell, "right": False}
                for name, cell in zip(rubric.columns, gold.rows[place], strict=True)
            ]
        )
        places.append({"answer": None, "reference": place})
    counts = ("right_items", "gold_items", "predicted_items", "right_rows", "gold_rows", "predicted_rows")
    return {
        "form": table.form,
        "header": table.header,
        "counts": {name: getattr(result, name) for name in (*counts, "ordered_pairs", "all_pairs")},
        "cells": cells,
        "rows": places,
    }


def _empty(value: float | None, status: Any, detail: dict[str, Any]) -> Score:
    return Score(dict.fromkeys(TABLE_METRICS, value), status, detail)
