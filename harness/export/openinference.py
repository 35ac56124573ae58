"""Export of traces as OTLP/JSON spans, with the attribute names of OpenInference's semantic conventions."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from stillweb.harness.export import finished, start_of, write
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import Event, Trace, read_trace
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.agents.attempt import Attempt
    from stillweb.harness.runs.display import Display
    from stillweb.harness.runs.engine import Job, Outcome

FLUSH = 30.0  # seconds to send the last attempts in
MOST = 1 << 16  # bytes read of a collector's answer

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


class SendingDisplay:
    """Display that sends each attempt to an OTLP collector as it ends, beside what another display shows.

    A thread sends, so that a slow collector delays no attempt. What can't be sent is counted and said at the end;
    the run goes on, and `stillweb report --format openinference` has all of it.
    """

    def __init__(self, shown: Display, run: Path, url: str, say: Callable[[str], None]) -> None:
        self._shown, self._files, self._say = shown, RunFiles(run.absolute()), say
        self._url = url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"
        self._waiting: Queue[Job | None] = Queue()
        self._thread = threading.Thread(target=self._send_all, name="stillweb-otlp", daemon=True)
        self._sent = 0
        self._lost: list[str] = []

    def __enter__(self) -> Self:
        self._shown.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._waiting.put(None)
        self._thread.join(FLUSH)
        self._shown.__exit__(*error)
        if self._thread.is_alive():
            self._lost.append(f"no answer within {FLUSH:.0f} seconds")
        if self._lost:
            self._say(
                f"{self._url}: {pluralize(self._sent, 'attempt')} sent, not all: {self._lost[0]}. "
                f"All are in: stillweb report {self._files.path} --format openinference"
            )

    def begin(self, total: int) -> None:
        self._shown.begin(total)

    def changed(self, attempt: Attempt) -> None:
        self._shown.changed(attempt)

    def left(self, attempt: Attempt, seconds: float) -> None:
        self._shown.left(attempt, seconds)

    def finished(self, outcome: Outcome) -> None:
        """Show an outcome, and send its attempt."""
        self._shown.finished(outcome)
        self._waiting.put(outcome.job)

    def _send_all(self) -> None:
        while (job := self._waiting.get()) is not None:
            try:
                trace = read_trace(self._files.trace_path(job.task_id, job.attempt))
                body = json.dumps(openinference(trace), ensure_ascii=False).encode()
                asked = urllib.request.Request(
                    self._url, body, {"Content-Type": "application/json", **_headers()}
                )
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    answer.read(MOST)
                self._sent += 1
            except (OSError, ValueError, HTTPException, StillwebError) as error:
                self._lost.append(f"{job.task_id}/{job.attempt}: {error}")


def _headers() -> dict[str, str]:
    """Return the fields in OTEL_EXPORTER_OTLP_HEADERS (name=value, …), such as a collector's key."""
    pairs = (one.partition("=") for one in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}


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
