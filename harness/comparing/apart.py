"""Where an attempt parted from its like in another run: what it answered instead, and its first call that is another."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

from stillweb.harness.comparing.compare import Comparison, Pair
from stillweb.harness.runs.display import one_line
from stillweb.harness.trace import Trace, canonical, read_trace

_Event = dict[str, Any]


def apart(comparison: Comparison, pair: Pair) -> str:
    """A line on the best attempt of the first run at a task and the worst of the second."""

    def rank(trace: Trace) -> float:
        value = (trace.last("score") or {}).get("metrics", {}).get(comparison.metric)
        return 0.0 if value is None else value * comparison.sense

    one = max((read_trace(Path(path)) for path in pair.traces_a), key=rank)
    two = min((read_trace(Path(path)) for path in pair.traces_b), key=rank)
    return f"{pair.task_id}: answer {_answer(one)} -> {_answer(two)}; {_calls(one, two)}"


def _answer(trace: Trace) -> str:
    event = trace.last("answer") or {}
    if event.get("error"):
        return f"none ({one_line(event['error'])})"
    return "none" if event.get("text") is None else repr(one_line(event["text"], 80))


def _calls(one: Trace, two: Trace) -> str:
    pairs = zip_longest(one.of("tool_call"), two.of("tool_call"))
    for number, (before, after) in enumerate(pairs, 1):
        if _asked(before) != _asked(after):
            return f"call {number}: {_told(before)} -> {_told(after)}"
        if before["output"]["digest"] != after["output"]["digest"]:
            return f"call {number} was answered otherwise: {_told(after)}"
    return "the same calls, answered alike"


def _asked(call: _Event | None) -> Any:
    return call and (call["tool"], canonical(call["arguments"]))


def _told(call: _Event | None) -> str:
    if call is None:
        return "none"
    missed = " (miss)" if call["verdict"] == "miss" else ""
    return f"{call['tool']} {one_line(canonical(call['arguments']).decode(), 120)}{missed}"
