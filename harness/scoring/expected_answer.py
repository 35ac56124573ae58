"""Expected answers of text tasks, and where they were seen; the counterpart of a table's cells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stillweb.harness.scoring import BEST, TEXTUAL
from stillweb.harness.scoring.value_search import Place, Seen
from stillweb.harness.trace import Trace

_MOST = 100  # characters; a page doesn't show a longer text word for word


@dataclass(frozen=True, slots=True)
class Wanted:
    """Accepted answer. `seen` are its places in tools' outputs, None if not searched.

    Outputs are not searched for a right answer, a long text, or an answer that the question holds (`asked`).
    """

    text: str
    seen: list[Place] | None = None
    asked: bool = False


def wanted(trace: Trace) -> list[Wanted]:
    """Return the accepted answers of a task whose answer is no table; [] if they are not text."""
    task: dict[str, Any] = trace.header["task"]
    answer, score = trace.last("answer") or {}, trace.last("score") or {}
    reference = task.get("reference")
    values = reference if isinstance(reference, list) else [reference]
    if answer.get("rows") or not all(isinstance(one, str | int | float) for one in values):
        return []
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    if is_right(trace) or task.get("scorer") not in TEXTUAL or score.get("status") == "unsolvable":
        return [Wanted(text) for text in texts]
    seen, question = Seen(trace.events), Seen([_as_output(task["question"])])
    return [
        Wanted(text)
        if len(text) > _MOST
        else Wanted(text, asked=True)
        if question.anywhere(text)
        else Wanted(text, seen.anywhere(text))
        for text in texts
    ]


def _as_output(text: str) -> dict[str, Any]:
    return {"event": "tool_call", "n": 0, "error": False, "output": {"text": text}}


def is_right(trace: Trace) -> bool:
    """Return True if all metrics have their best value, except raw and forgiven ones and the order.

    The required order is part of em. The share of ordered pairs is 0 for one row, and arbitrary if no order
    is required.
    """
    score = trace.last("score")
    if score is None or score["status"] != "scored":
        return False
    plain = [
        value
        for name, value in score["metrics"].items()
        if not name.startswith(("raw_", "forgiven_")) and name != "order_accuracy"
    ]
    best = BEST.get(trace.header["task"].get("scorer", ""), 1.0)
    return bool(plain) and all(value == best for value in plain)
