"""Long-context prompts as `stillweb prompts build` writes them: one task per line.

A row without a prompt is a task, too (`meta["unsolvable"]` says why), so that every row counts in the
denominator.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from stillweb.harness.datasets.records import Record, RecordError
from stillweb.harness.task import Task

FIELDS = frozenset(
    (
        "state", "task_id", "problem", "answer", "text", "tokens", "pages", "certificate", "digest",
        "reason", "canary"
    )
)  # fmt: skip


def recognise(data: dict[str, Any]) -> bool:
    return data.get("state") in ("built", "failed") and "certificate" in data


def build(record: Record) -> Task:
    """Return the task of a line.

    `meta["prompt"]` is the digest of the certificate that determines the prompt.

    Raise RecordError for a text or a certificate that doesn't match its digest.
    """
    state, task_id, problem = record.text("state"), record.text("task_id"), record.text("problem")
    certificate = record.value("certificate", dict)
    if certificate is None:
        raise RecordError("certificate", "is missing")
    meta = {
        "set": "browsecomp-lc",
        "problem": problem,
        "budget": certificate.get("budget"),
        "prompt": record.text("digest"),
    }
    if canary := record.text("canary", required=False):
        meta["canary"] = canary
    if state == "failed":
        meta["unsolvable"] = record.text("reason")
    elif state != "built":
        raise RecordError("state", "must be built or failed")
    elif sha256(record.text("text").encode("utf-8", "surrogatepass")).hexdigest() != certificate.get(
        "prompt"
    ):
        raise RecordError("text", "is not the prompt of its certificate")
    if hash_of(certificate) != record.text("digest"):
        raise RecordError("certificate", "is not the one of its digest")
    return Task(
        id=task_id,
        question=record.text("text") if state == "built" else problem,
        reference=record.text("answer"),
        scorer="browsecomp",
        meta=meta,
        base=task_id,
    )


def hash_of(value: Any) -> str:
    """Return the SHA-256 (hex) of a value as canonical JSON, the digest of a certificate."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
