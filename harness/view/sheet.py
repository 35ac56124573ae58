"""Sheets: the data that a page shows of one attempt."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from stillweb.harness.scoring import Score
from stillweb.harness.scoring.value_search import ExpectedAnswer, accepted_answers
from stillweb.harness.trace import Event, Trace
from stillweb.snapshots.words import pluralize

MOST_TEXT = 6000  # characters shown of an output
Step = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One attempt, ready for display. `table` rows hold cells with CSS class names for their colours."""

    id: str
    name: str
    task: dict[str, Any]
    attempt: int
    status: str
    end: str
    error: str | None
    metrics: dict[str, float | None]
    answer: str | None
    wanted: list[ExpectedAnswer]  # for an answer that is not a table
    columns: list[str]
    table: list[dict[str, Any]]
    ordered: bool
    lost: int  # wrong cells whose right value was seen
    unseen: int  # wrong cells whose right value was never seen
    steps: list[Step]
    misses: list[Event]
    failures: list[Event]
    calls: int
    models: int
    tokens: int
    problems: list[str]
    hash: str
    reviews: list[Event]

    @property
    def main_metrics(self) -> list[tuple[str, float | None]]:
        """The first four metrics that are not raw or forgiven forms."""
        plain = [(n, v) for n, v in self.metrics.items() if not n.startswith(("raw_", "forgiven_"))]
        return plain[:4]


def sheet_of(trace: Trace) -> AttemptReport:
    """Return the sheet of a trace, which may be unfinished."""
    score = trace.last("score") or {"metrics": {}, "status": "zero", "detail": {}}
    answer = trace.last("answer") or {"text": None, "end": "none"}
    rows = answer.get("rows") or []
    table = [_row(row) for row in rows]
    wrong = [cell for row in rows for cell in row if not cell["right"] and cell.get("reference")]
    detail = score["detail"]
    counts = trace.counts
    name = f"{trace.task_id}/{trace.attempt}"
    return AttemptReport(
        id="a-" + re.sub(r"[^A-Za-z0-9_-]", lambda m: f".{ord(m[0]):x}", name),
        name=name,
        task=trace.header["task"],
        attempt=trace.attempt,
        status=score["status"],
        end=answer["end"],
        error=answer.get("error"),
        metrics=Score.from_json(score).metrics,
        answer=answer["text"],
        wanted=accepted_answers(trace),
        columns=[
            str(c) for c in detail.get("columns") or [cell["column"] for cell in (rows[0] if rows else [])]
        ],
        table=table,
        ordered=bool(detail.get("ordered")),
        lost=sum(1 for cell in wrong if cell.get("reference_seen")),
        unseen=sum(1 for cell in wrong if not cell.get("reference_seen")),
        steps=[step for event in trace.events if (step := _step(event))],
        misses=trace.misses,
        failures=trace.failures,
        calls=counts.calls,
        models=counts.models,
        tokens=counts.tokens,
        problems=[str(problem) for problem in detail.get("problems") or ()],
        hash=trace.hash,
        reviews=trace.of("review"),
    )


def _row(row: list[Event]) -> dict[str, Any]:
    given = any(cell["value"] is not None for cell in row)
    wanted = any(cell.get("reference") is not None for cell in row)
    kind = "missing" if not given else "extra" if not wanted else "matched"
    return {
        "kind": kind,
        "right": all(cell["right"] for cell in row),
        "cells": [_cell(cell, kind) for cell in row],
    }


def _cell(cell: Event, kind: str) -> dict[str, Any]:
    seen = cell.get("seen") or []
    sought = cell.get("reference_seen") or []
    if cell["right"]:
        mark, word = "right", "right"
    elif kind == "extra":
        mark, word = "extra", "row not in the reference"
    else:
        mark, word = "wrong", "wrong" if cell["value"] is not None else "missing"
    return {
        "mark": mark,
        "word": word,
        "value": cell["value"],
        "reference": cell.get("reference"),
        "normalised": cell.get("normalised"),
        "seen": seen[0]["event"] if seen else None,
        "reference_seen": sought[0]["event"] if sought else None,
        "never": mark == "wrong" and bool(cell.get("reference")) and not sought,
    }


def _step(event: Event) -> Step | None:
    kind = event["event"]
    if kind == "tool_call":
        return _tool_step(event)
    if kind == "model":
        reply = event["reply"]
        return {
            "kind": "model",
            "n": event["n"],
            "purpose": event["purpose"],
            "model": event["model"],
            "served": event.get("served"),
            "text": _cut(reply["text"] or ""),
            "reasoning": _cut(reply.get("reasoning") or ""),
            "calls": [f"{call['name']}({call['arguments']})" for call in reply["tool_calls"]],
            "hosted": len(reply.get("hosted") or ()),
            "usage": event["usage"],
            "cost": event.get("cost"),
        }
    if kind == "state":
        return {"kind": "state", "n": event["n"], "url": event["url"], "changed": event["changed"]}
    if kind == "evidence":
        text = (
            event.get("text")
            or (f"a judge failed: {event['problem']}" if event["kind"] == "judge" else "")
            or f"{event.get('expression')} = {json.dumps(event.get('value'), ensure_ascii=False)}"
        )
        raised = str(event.get("aside", {}).get("traceback", ""))
        return {"kind": "evidence", "n": event["n"], "text": _cut(text), "traceback": _cut_before(raised)}
    return None


def _tool_step(event: Event) -> Step:
    verdict = event["verdict"]
    text = event["output"]["text"]
    return {
        "kind": "tool",
        "n": event["n"],
        "tool": event["tool"],
        "contract": event["contract"],
        **_asked(event),
        "arguments": _arguments(event["arguments"]),
        "verdict": verdict or "none",
        "verdict_kind": (verdict or "none").partition(":")[0],
        "error": event["error"],
        "text": _cut(text),
        "size": len(text),
        "other": event["output"].get("other") or [],
        "captures": event["captures"],
        "slice": event.get("slice"),
        "nearest": [_near(near) for near in event.get("nearest") or ()],
        "digest": event["output"]["digest"],
        "confidence": event.get("confidence"),
        "view": event.get("view"),
        "address": event.get("address"),
    }


def _asked(event: Event) -> Step:
    """Return the chronological number of a program's request, and the irrelevant requests beside it.

    Requests of programs are listed by address, not in the order in which they were made.
    """
    aside = event.get("aside") or {}
    beside = [f"{one['method']} {one['url']}: {one['verdict']}" for one in aside.get("irrelevant") or ()]
    return {
        "asked": aside["order"] + 1 if event["contract"] == "proxy" and "order" in aside else None,
        "beside": beside,
    }


def _arguments(arguments: Any) -> list[tuple[str, str]]:
    if not isinstance(arguments, dict):
        return [("", str(arguments))]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in arguments.items()
    ]


def _near(near: Any) -> dict[str, str]:
    if not isinstance(near, dict):
        return {"url": str(near), "differs": ""}
    differs = near.get("differs")
    words = ", ".join(map(str, differs)) if isinstance(differs, list) else str(differs or "")
    capture = near.get("capture")
    url = near.get("url") or (capture.get("url") if isinstance(capture, dict) else "") or ""
    method = near.get("method") or (capture.get("method") if isinstance(capture, dict) else "") or ""
    return {"url": f"{method} {url}".strip(), "differs": words}


def _cut_before(text: str) -> str:
    """Return the end of a traceback, which says what was raised and where."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{pluralize(len(text) - MOST_TEXT, 'character')} more in the trace …\n{text[-MOST_TEXT:]}"


def _cut(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n… {pluralize(len(text) - MOST_TEXT, 'character')} more in the trace"
