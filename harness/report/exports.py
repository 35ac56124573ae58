"""Traces in other people's formats, so that their viewers open them.

    openinference(trace)        one trace as OTLP/JSON spans with OpenInference's attribute names
    export_openinference(run, out)      a JSON line (an OTLP request) an attempt
    export_inspect(run, out)            one inspect log (EvalLog version 2, JSON)

Sources: OpenTelemetry's OTLP/JSON encoding; OpenInference semantic conventions; inspect_ai's log schema. Times are those
of the run where the trace has them, else counted from 0, so that an export is a function of the run's files alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.results.summary import summarise
from harness.runs.run_files import RunFiles
from harness.trace import Event, Trace, digest
from snapshots.archives.appending import write_whole

Attributes = dict[str, str | int | float | bool]


def openinference(trace: Trace) -> dict[str, Any]:
    """An OTLP ExportTraceServiceRequest: a span for the attempt, one below it for each model and tool call."""
    trace_id = trace.hash[:32]
    begin = _start(trace)
    answer, score = trace.last("answer") or {}, trace.last("score") or {}
    spans: list[dict[str, Any]] = []
    now = begin
    for event in trace.events:
        if event["event"] not in ("model", "tool_call"):
            continue
        end = now + int(float((event.get("aside") or {}).get("seconds", 0)) * 1e9)
        name = event["model"] if event["event"] == "model" else event["tool"]
        attributes = _model_attributes(event) if event["event"] == "model" else _tool_attributes(event)
        failed = event["event"] == "tool_call" and event["error"]
        spans.append(_span(trace_id, event["n"], 0, name, now, end, attributes, failed))
        now = end
    attempt: Attributes = {
        "openinference.span.kind": "AGENT",
        "session.id": trace.header["session"],
        "input.value": trace.header["task"]["question"],
        "output.value": answer.get("text") or "",
        "stillweb.snapshot": trace.header["snapshot"] or "",
        "stillweb.status": score.get("status", ""),
        "stillweb.end": answer.get("end", ""),
        "stillweb.misses": len(trace.misses),
    }
    for name, value in (score.get("metrics") or {}).items():
        if value is not None:
            attempt[f"stillweb.score.{name}"] = value
    root = _span(
        trace_id,
        0,
        None,
        f"{trace.task_id}/{trace.attempt}",
        begin,
        now,
        attempt,
        answer.get("end") == "error",
    )
    resource = {"attributes": _attributes({"service.name": "stillweb"})}
    scoped = {"scope": {"name": "stillweb"}, "spans": [root, *spans]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def _start(trace: Trace) -> int:
    started = (trace.header.get("aside") or {}).get("started")
    return int(started * 1e9) if isinstance(started, (int, float)) else 0


def _span(
    trace_id: str,
    n: int,
    parent: int | None,
    name: str,
    begin: int,
    end: int,
    attributes: Attributes,
    failed: bool,
) -> dict[str, Any]:
    span = {
        "traceId": trace_id,
        "spanId": _span_id(trace_id, n),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(attributes),
        "status": {"code": 2 if failed else 1},
    }
    if parent is not None:
        span["parentSpanId"] = _span_id(trace_id, parent)
    return span


def _span_id(trace_id: str, n: int) -> str:
    return sha256(f"{trace_id}/{n}".encode()).hexdigest()[:16]


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, bool):
            found.append({"key": key, "value": {"boolValue": value}})
        elif isinstance(value, int):
            found.append({"key": key, "value": {"intValue": str(value)}})
        elif isinstance(value, float):
            found.append({"key": key, "value": {"doubleValue": value}})
        else:
            found.append({"key": key, "value": {"stringValue": value}})
    return found


def _model_attributes(event: Event) -> Attributes:
    reply, usage = event["reply"], event["usage"]
    values: Attributes = {
        "openinference.span.kind": "EVALUATOR" if event["purpose"] == "judge" else "LLM",
        "llm.model_name": event.get("served") or event["model"],
        "llm.token_count.prompt": usage["input"],
        "llm.token_count.completion": usage["output"],
        "llm.token_count.total": usage["input"] + usage["output"],
        "llm.token_count.prompt_details.cache_read": usage.get("cached", 0),
        "output.value": reply["text"] or "",
    }
    for i, message in enumerate(event["request"]["new"]):
        start = f"llm.input_messages.{i}.message"
        values[f"{start}.role"] = str(message.get("role") or message.get("type") or "")
        content = message.get("content") or message.get("output") or ""
        values[f"{start}.content"] = (
            content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        )
    start = "llm.output_messages.0.message"
    values[f"{start}.role"] = "assistant"
    values[f"{start}.content"] = reply["text"] or ""
    for i, call in enumerate(reply["tool_calls"]):
        values[f"{start}.tool_calls.{i}.tool_call.function.name"] = call["name"]
        values[f"{start}.tool_calls.{i}.tool_call.function.arguments"] = call["arguments"]
    return values


def _tool_attributes(event: Event) -> Attributes:
    arguments = event["arguments"]
    return {
        "openinference.span.kind": "TOOL",
        "tool.name": event["tool"],
        "tool.parameters": arguments
        if isinstance(arguments, str)
        else json.dumps(arguments, ensure_ascii=False),
        "output.value": event["output"]["text"],
        "stillweb.verdict": event["verdict"] or "",
        "stillweb.contract": event["contract"] or "",
    }


def export_openinference(path: Path, out: Path) -> Path:
    """Writes one OTLP/JSON request a line for each finished attempt."""
    lines = (json.dumps(openinference(trace), ensure_ascii=True) + "\n" for trace in _finished(path))
    _write(out, (line.encode() for line in lines))
    return out


def _write(out: Path, pieces: Iterable[bytes]) -> None:
    """Whole or not at all; only what is no file (a pipe, /dev/stdout) gets it piece by piece."""
    if out.exists() and not out.is_file():
        with out.open("wb") as file:
            file.writelines(pieces)
    else:
        write_whole(out.resolve(), pieces)


def _finished(path: Path) -> Iterator[Trace]:
    for _task, _number, trace in RunFiles(path).attempts():
        if trace is not None:
            yield trace


def export_inspect(path: Path, out: Path) -> Path:
    """Writes the run as an inspect log; `inspect view` opens it."""
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    summary = summarise(path)
    samples = [_sample(trace) for trace in _finished(path)]
    starts = [_start(trace) for trace in _finished(path)]
    created = datetime.fromtimestamp(min(starts, default=0) / 1e9, UTC).isoformat()
    agent = stands_on.get("agent") or {}
    model = f"stillweb/{agent.get('model') or agent.get('kind') or 'agent'}"
    run_id = digest(stands_on)[:22]
    metrics = {
        name: {
            "name": name,
            "value": mean.all,
            "params": {},
            "metadata": {"scored": mean.scored, "of": mean.of},
        }
        for name, mean in summary.means.items()
    }
    scores = [
        {
            "name": name,
            "scorer": name,
            "params": {},
            "metrics": {"mean": {**metric, "name": "mean"}},
        }
        for name, metric in metrics.items()
    ]
    log = {
        "version": 2,
        "status": "success" if not summary.statuses["unfinished"] else "started",
        "eval": {
            "run_id": run_id,
            "eval_id": run_id,
            "created": created,
            "task": "stillweb",
            "task_id": run_id,
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {
                "name": "stillweb",
                "samples": len(files.tasks()),
                "sample_ids": [task.id for task in files.tasks()],
                "shuffled": False,
            },
            "model": model,
            "model_args": {},
            "config": {"epochs": settings.epochs},
            "packages": {},
            "metadata": {"snapshot": stands_on.get("snapshot")},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {"total_samples": summary.owed, "completed_samples": len(samples), "scores": scores},
        "stats": {
            "started_at": created,
            "completed_at": created,
            "model_usage": _usage(event for trace in _finished(path) for event in trace.of("model")),
        },
        "samples": samples,
    }
    _write(out, [(json.dumps(log, ensure_ascii=True, indent=1) + "\n").encode()])
    return out


def _sample(trace: Trace) -> dict[str, Any]:
    task, answer, score = trace.header["task"], trace.last("answer") or {}, trace.last("score") or {}
    reference = task.get("reference")
    target = reference if isinstance(reference, str) else json.dumps(reference, ensure_ascii=False)
    text = answer.get("text")
    messages = [{"id": _message_id(trace, 0), "role": "user", "content": task["question"]}]
    for event in trace.of("tool_call"):
        call = event.get("id") or f"call_{event['n']}"
        arguments = (
            event["arguments"] if isinstance(event["arguments"], dict) else {"text": str(event["arguments"])}
        )
        wanted = [{"id": call, "function": event["tool"], "arguments": arguments, "type": "function"}]
        messages.append(
            {
                "id": _message_id(trace, 2 * event["n"]),
                "role": "assistant",
                "content": "",
                "tool_calls": wanted,
            }
        )
        told = {
            "role": "tool",
            "content": event["output"]["text"],
            "tool_call_id": call,
            "function": event["tool"],
        }
        messages.append({"id": _message_id(trace, 2 * event["n"] + 1), **told})
    if text is not None:
        messages.append({"id": _message_id(trace, -1), "role": "assistant", "content": text})
    explanation = "; ".join(map(str, (score.get("detail") or {}).get("problems") or ())) or score.get(
        "status"
    )
    scores = {
        name: {"value": value, "answer": text, "explanation": explanation}
        for name, value in (score.get("metrics") or {}).items()
        if value is not None
    }
    choice = {"message": {"role": "assistant", "content": text or ""}, "stop_reason": "stop"}
    verdicts = [event["verdict"] for event in trace.of("tool_call")]
    return {
        "id": trace.task_id,
        "epoch": trace.attempt,
        "input": task["question"],
        "target": target,
        "messages": messages,
        "output": {"model": "stillweb", "choices": [choice]},
        "scores": scores,
        "metadata": {
            "status": score.get("status"),
            "end": answer.get("end"),
            "verdicts": verdicts,
            "trace": trace.hash,
        },
        "store": {},
        "events": [],
        "model_usage": _usage(trace.of("model")),
        "attachments": {},
    }


def _usage(calls: Iterable[Event]) -> dict[str, dict[str, int]]:
    """Tokens by model, as inspect's ModelUsage has them: cached ones apart from the others that came in."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for event in calls:
        usage, sums = event["usage"], found[event.get("served") or event["model"]]
        cached = usage.get("cached", 0)
        sums["input_tokens"] += usage["input"] - cached
        sums["input_tokens_cache_read"] += cached
        sums["output_tokens"] += usage["output"]
        sums["total_tokens"] += usage["input"] + usage["output"]
    return {model: dict(sums) for model, sums in sorted(found.items())}


def _message_id(trace: Trace, n: int) -> str:
    return sha256(f"{trace.hash}/{n}".encode()).hexdigest()[:22]
