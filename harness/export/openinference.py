"""Export of traces as OTLP/JSON spans, with the attribute names of OpenInference's semantic conventions."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness.export.files import finished, start_of, write
from stillweb.harness.trace import Event, Trace

Attributes = dict[str, str | int | float | bool]


def openinference(trace: Trace) -> dict[str, Any]:
    """Return an OTLP ExportTraceServiceRequest: a span for the attempt with one below for each call."""
    trace_id = trace.hash[:32]
    begin = start_of(trace)
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
    """Write one OTLP/JSON request per line for each finished attempt."""
    lines = (json.dumps(openinference(trace), ensure_ascii=True) + "\n" for trace in finished(path))
    write(out, (line.encode() for line in lines))
    return out
