"""Export of a run as one inspect log (EvalLog version 2, JSON), after inspect_ai's log schema."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness.export import finished, start_of, write
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import Event, Trace, digest


def export_inspect(path: Path, out: Path) -> Path:
    """Write the run as an inspect log, which `inspect view` opens."""
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    summary = summarise(path)
    samples = [_sample(trace) for trace in finished(path)]
    starts = [start_of(trace) for trace in finished(path)]
    created = datetime.fromtimestamp(min(starts, default=0) / 1e9, UTC).isoformat()
    agent = stands_on.get("agent") or {}
    model = f"stillweb/{agent.get('model') or agent.get('kind') or 'agent'}"
    run_id = digest(stands_on)[:22]
    scores = [
        {
            "name": name,
            "scorer": name,
            "scored_samples": mean.scored,
            "unscored_samples": mean.of - mean.scored,
            "params": {},
            "metrics": {"mean": {"name": "mean", "value": mean.mean_of_all, "params": {}}},
        }
        for name, mean in summary.means.items()
    ]
    completed = sum("error" not in sample for sample in samples)
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
        "results": {"total_samples": summary.owed, "completed_samples": completed, "scores": scores},
        "stats": {
            "started_at": created,
            "completed_at": created,
            "model_usage": _usage(event for trace in finished(path) for event in trace.of("model")),
        },
        "samples": samples,
    }
    write(out, [(json.dumps(log, ensure_ascii=True, indent=1) + "\n").encode()])
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
        message = {
            "role": "tool",
            "content": event["output"]["text"],
            "tool_call_id": call,
            "function": event["tool"],
        }
        messages.append({"id": _message_id(trace, 2 * event["n"] + 1), **message})
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
    error = str(answer.get("error") or "the attempt failed") if answer.get("end") == "error" else ""
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
        **({"error": {"message": error, "traceback": "", "traceback_ansi": ""}} if error else {}),
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
    """Return the tokens by model as in inspect's ModelUsage: cached tokens apart from other input."""
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
