"""BrowseComp: encrypted rows of a problem and its answer; in its Long Context form also the pages to read.

Encryption as the cards have it: the key is SHA-256 of the canary, repeated; XOR; base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, Literal

from stillweb.harness.benchmarks.browsecomp.scorer import official_texts
from stillweb.harness.datasets.records import Record, RecordError, parse_literal
from stillweb.harness.task import Task

Role = Literal["required", "additional"]
FIELDS = frozenset(("problem", "answer", "urls", "canary", "id", "task_id", "problem_topic"))


def recognise(data: dict[str, Any]) -> bool:
    return "problem" in data and "state" not in data and any(name in data for name in ("urls", "canary"))


def derive_key(password: str, length: int) -> bytes:
    """Return `length` bytes of key: the SHA-256 of the password, repeated and cut."""
    digest = hashlib.sha256(password.encode()).digest()
    return (digest * (length // len(digest) + 1))[:length]


def decrypt(ciphertext: str, password: str) -> str:
    """Return the plain text of a base64 text, which may be broken into lines.

    Raise ValueError for other text, or a wrong key (no UTF-8).
    """
    data = base64.b64decode("".join(ciphertext.split()), validate=True)
    return bytes(a ^ b for a, b in zip(data, derive_key(password, len(data)), strict=True)).decode()


def build(record: Record) -> Task:
    """Return the task of a row.

    With a `canary`, problem, answer and urls are decrypted; otherwise taken as is.

    `meta["urls"]` is a list of [url, "required" | "additional"]. The task's question is the bare problem,
    which `stillweb.harness.benchmarks.browsecomp.prompts` turns into a prompt. A row without urls is one of the original BrowseComp,
    to be browsed for: its question has the form that the authors ask for the answer in. The id is the row's own, else the first 16 hex
    digits of the problem's SHA-256, so that ids don't depend on the order of rows.
    """
    canary = record.data.get("canary")
    if canary is not None and not isinstance(canary, str):
        raise RecordError("canary", "must be text")
    problem, answer = (_plain(record, name, canary) for name in ("problem", "answer"))
    browsing = record.data.get("urls") is None
    raw_urls = [] if browsing else record.data["urls"]
    if isinstance(raw_urls, str):
        raw_urls = parse_literal(_plain(record, "urls", canary), "urls")
    urls = parse_urls(raw_urls)
    given = record.data.get("id") or record.data.get("task_id")
    task_id = str(given) if given is not None else hashlib.sha256(problem.encode()).hexdigest()[:16]
    meta: dict[str, Any] = {"set": "browsecomp" if browsing else "browsecomp-lc", "problem": problem}
    # so that what holds the plain text also holds the canary, and can be encrypted again
    if canary is not None:
        meta["canary"] = canary
    if browsing:
        topic = record.text("problem_topic", required=False)
        meta |= {"topic": topic} if topic else {}
    else:
        meta["urls"] = [list(pair) for pair in urls]
    return Task(
        id=task_id,
        question=official_texts()["question"].replace("{Question}", problem) if browsing else problem,
        reference=answer,
        scorer="browsecomp",
        meta=meta,
        base=task_id,
    )


def parse_urls(value: Any) -> list[tuple[str, Role]]:
    """Return (url, role) pairs; a role may be a word or a boolean (true: required).

    RecordError names the entry.
    """
    if not isinstance(value, list | tuple):
        raise RecordError("urls", f"must be a list, not {type(value).__name__}")
    pairs: list[tuple[str, Role]] = []
    for index, entry in enumerate(value):
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise RecordError(f"urls[{index}]", "must be [url, role]")
        role = (
            {True: "required", False: "additional"}.get(entry[1]) if isinstance(entry[1], bool) else entry[1]
        )
        if role == "required":
            pairs.append((entry[0], "required"))
        elif role == "additional":
            pairs.append((entry[0], "additional"))
        else:
            raise RecordError(f"urls[{index}]", f"role {role!r} is neither required nor additional")
    return pairs


def _plain(record: Record, name: str, canary: str | None) -> str:
    text = record.text(name)
    if canary is None:
        return text
    try:
        return decrypt(text, canary)
    except UnicodeDecodeError as error:
        raise RecordError(name, "decrypts to no text (is the canary that of this row?)") from error
    except (binascii.Error, ValueError) as error:
        raise RecordError(name, f"not base64: {error}") from error
