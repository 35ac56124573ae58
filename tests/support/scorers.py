"""Scorers of one's own, named by import path in tests of runs."""

from __future__ import annotations

from stillweb.harness.scoring import Context, Score
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError


def timed(task: Task, answer: str | None, context: Context) -> Score:
    """A metric, and a time that is another one each time."""
    import time

    return Score({"passall5": 1.0, "aet": time.perf_counter()}, "scored", {"measured": [1]})


def broken(task: Task, answer: str | None, context: Context) -> Score:
    """Fail as users' own scorers do: the task's id says how."""
    if task.id.startswith("raises"):
        return Score({"right": {}["nothing"]})
    if task.id.startswith("nan"):
        return Score({"right": float("nan")})
    if task.id.startswith("none"):
        return None  # type: ignore[return-value]
    if task.id.startswith("exits"):
        raise SystemExit(0)
    if task.id.startswith("detail"):
        return Score({"right": 1.0}, "scored", {"seen": {1, 2}})
    return Score({"right": 1.0})


def judged(task: Task, answer: str | None, context: Context) -> Score:
    """Needs a judge that the run doesn't have."""
    if context.env.get("OPENAI_NO_JUDGE"):
        raise UsageError(f"task {task.id}: no judge")
    return Score({"correct": 1.0})


def sandboxed(task: Task, answer: str | None, context: Context) -> Score:
    """Runs a program that does not end; its words name the folder `scoring`."""
    import sys
    from pathlib import Path

    from stillweb.harness.sandbox.running import Limits, run

    (here := Path("scoring")).mkdir()
    code = "import time; time.sleep(3600)"
    run([sys.executable, "-c", code, str(here.absolute())], cwd=here.absolute(), limits=Limits(seconds=3600))
    return Score({"right": 1.0})


def hundred(task: Task, answer: str | None, context: Context) -> Score:
    """Gives the metric of another scorer, of 100 instead of 1."""
    return Score({"exact": 80.0})
