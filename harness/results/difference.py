"""First event that differs between a run and its repetition, and the known reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.harness.results.kept_certificate import differing, short
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import Trace, hashed_part, read_trace
from stillweb.snapshots.words import counted


@dataclass(frozen=True, slots=True)
class Difference:
    """First event that differs between a run and its repetition. `path` leads to the member."""

    attempt: str
    event: int  # n; 0 is the header
    kind: str
    path: str
    before: Any
    after: Any
    why: str = ""

    def __str__(self) -> str:
        what = "the header" if self.event == 0 else f"event {self.event} ({self.kind})"
        return f"{self.attempt}: {what} differs in {self.path}: {short(self.before)}, repeated {short(self.after)}{self.why}"


def first_difference(
    path: Path, again: Path, certificate: Mapping[str, Any], other: Mapping[str, Any]
) -> Difference | str:
    """Return the first event that differs, in task order; if none does, the member of the certificate."""
    one, two = RunFiles(path), RunFiles(again)
    for task, number, trace in one.attempts():
        repeated = two.trace_path(task.id, number)
        name = f"{task.id}/{number}"
        if trace is None or not repeated.exists():
            return f"{name}: there is a trace in one run only"
        if certificate["attempts"].get(name) != other["attempts"].get(name):
            return _compare(name, trace, read_trace(repeated))
    for member in certificate:
        if member != "hash" and certificate[member] != other.get(member):
            return f"the certificate's {member} differs: {short(certificate[member])}, repeated {short(other.get(member))}"
    return "the hashes differ, but no member does"


def _compare(name: str, one: Trace, two: Trace) -> Difference | str:
    mine = [event for event in (one.header, *one.events) if event["event"] != "review"]
    theirs = [event for event in (two.header, *two.events) if event["event"] != "review"]
    for before, after in zip(mine, theirs, strict=False):
        old, new = hashed_part(before), hashed_part(after)
        if old != new:
            place, was, now = differing(old, new)
            return Difference(name, before.get("n", 0), before["event"], place, was, now, _why(one, two))
    return f"{name}: {counted(len(mine) - 1, 'event')}, repeated {len(theirs) - 1}"


def _why(one: Trace, two: Trace) -> str:
    """Return the reason as far as the traces tell it, as the end of a line."""
    first, again = (trace.last("answer") or {} for trace in (one, two))
    # the repetition ended before it reached this event
    if again.get("error") and again["error"] != first.get("error"):
        return f" ({again['end']}: {again['error']})"
    was, now = ((answer.get("aside") or {}).get("given_up", 0) for answer in (first, again))
    if was != now:
        told = f"gave up {counted(now, 'model call')} under way, and {was} the first time"
        return f" (its agent {told}: what it does hangs on the clock)"
    if any("order" in (event.get("aside") or {}) for event in one.of("model")):
        return " (its agent has calls under way at once, and what it does hangs on which of them ends first)"
    return ""
