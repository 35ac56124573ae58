"""A scorer of one's own, named in a task as `examples.own.scorers:haiku`."""

from __future__ import annotations

from stillweb.harness.scoring import Context, Score, score_without_answer
from stillweb.harness.task import Task


def haiku(task: Task, answer: str | None, context: Context) -> Score:
    """Three lines, and the word of the task's last noun in one of them."""
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    lines = answer.strip().splitlines()
    return Score(
        {"lines": float(len(lines) == 3), "ferry": float("ferry" in answer.lower())}, detail={"lines": lines}
    )
