"""Export of a run as CSV, one row per attempt, for a spreadsheet or pandas.

Columns: task, attempt, base, scorer, status, end, then `score.NAME` for each metric, then misses, calls,
models (including judges), tokens, cost, question, answer, reference, problem, review, trace (its hash).
Missing values are empty; an unfinished attempt has only its task and status. A reference that is not text, and
`review` (reviewer: class), are JSON. A text that a spreadsheet would take for a formula has an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from stillweb.harness.export import write
from stillweb.harness.results.summary import UNFINISHED
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.scoring import Score
from stillweb.harness.scoring.judging import failure
from stillweb.harness.task import Task
from stillweb.harness.trace import Trace

_FIRST = ("task", "attempt", "base", "scorer", "status", "end")
_LAST = (
    "misses", "calls", "models", "tokens", "cost", "question", "answer", "reference", "problem", "review",
    "trace"
)  # fmt: skip

_FORMULA = re.compile(r"[=+\-@\t\r](?![\d.,]*\Z)")  # a number with its sign is none


def export_csv(run: Path, out: Path) -> Path:
    """Write the rows of a run, in the order of its tasks; return the path."""
    rows: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for task, number, trace in RunFiles(run).attempts():
        row = _row(task, number, trace)
        metrics.update(dict.fromkeys(row["metrics"]))
        rows.append({**row.pop("metrics"), **{name: _plain(value) for name, value in row.items()}})
    text = io.StringIO()
    writer = csv.DictWriter(text, [*_FIRST, *metrics, *_LAST], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write(out, [text.getvalue().encode("utf-8", "backslashreplace")])
    return out


def _plain(value: Any) -> Any:
    """Return a cell of which a spreadsheet computes nothing: models and task sets write some of them."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _row(task: Task, number: int, trace: Trace | None) -> dict[str, Any]:
    reference = task.reference
    told: dict[str, Any] = {
        "task": task.id,
        "attempt": number,
        "base": task.base,
        "scorer": task.scorer,
        "status": UNFINISHED,
        "question": task.question,
        "reference": reference
        if isinstance(reference, str | None)
        else json.dumps(reference, ensure_ascii=False),
        "metrics": {},
    }
    if trace is None:
        return told
    score, answer = trace.last("score") or {}, trace.last("answer") or {}
    counts = trace.counts
    reviews = {event["reviewer"]: event["class"] for event in trace.of("review")}  # the last of each
    return told | {
        "status": score["status"],
        "end": answer.get("end"),
        "metrics": {f"score.{name}": value for name, value in Score.from_json(score).metrics.items()},
        **{name: getattr(counts, name) for name in ("misses", "calls", "models", "tokens", "cost")},
        "answer": answer.get("text"),
        "problem": failure(trace) or "; ".join(map(str, score["detail"].get("problems") or ())),
        "review": json.dumps(reviews, ensure_ascii=False) if reviews else "",
        "trace": trace.hash,
    }
