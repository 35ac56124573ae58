"""Reviews by people of why an answer was wrong, in six classes; hints from the trace are suggestions.

    hints_of(trace)                     machine hints, each with the class it suggests and the events it read
    add_review(trace path, review)      checks a review and appends it to the trace
    agreement(run)                      two reviewers: share agreed and Cohen's kappa

A wrong answer with an open upstream signal in its chain can be classed as a composition error only if the
reviewer says why the signal does not matter.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import Event, Trace, append_event, read_trace
from stillweb.snapshots._os.text_files import not_utf8
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.words import pluralize, whole_number

COMPOSITION = "final answer composition error"
CLASSES = {
    "self-rewriting": "The agent answered another question: it changed, dropped or added a condition.",
    "drift": "It left the state, page or entity that the question is about and went on as if it had not.",
    "criterion mismatch": "It looked in the right place, but applied a condition wrongly, or another one.",
    "in-page misreading": "The page was the right one and was read wrongly: wrong row, column, unit, value.",
    "retrieval dependency not closed": "Something the answer depends on was never fetched, or only in part.",
    COMPOSITION: "The chain before is basically right; the answer was put together or formatted wrongly.",
}
HIGH_ITEM_F1 = 0.8  # from here on, an answer with wrong rows is first checked for upstream causes


@dataclass(frozen=True, slots=True)
class Hint:
    """Suggestion of a class. `upstream` hints block the class composition error."""

    suggests: str
    text: str
    events: tuple[int, ...] = ()
    upstream: bool = True


def hints_of(trace: Trace) -> list[Hint]:
    """Return hints from a trace, in the order of the classes in a chain."""
    from stillweb.harness.scoring.value_search import accepted_answers

    answer, score = trace.last("answer"), trace.last("score")
    rows = (answer or {}).get("rows") or []
    metrics = (score or {}).get("metrics", {})
    hints = [
        *_rewriting(trace),
        *_drift(trace),
        *_criterion(rows, metrics),
        *_misreading(rows),
        *_unclosed(trace, rows),
        *_of_text(trace, answer),
    ]
    wrong = [cell.get("reference_seen") for row in rows for cell in row if _is_wrong(cell)]
    places = [one.places for one in accepted_answers(trace) if one.places is not None]
    if not hints and ((wrong and all(wrong)) or any(places)):
        text = "every right value was in a tool's output, and nothing upstream looks open"
        hints.append(Hint(COMPOSITION, text, (), False))
    return hints


def _is_wrong(cell: Event) -> bool:
    return not cell["right"] and bool(cell.get("reference"))


def _rewriting(trace: Trace) -> list[Hint]:
    asked = set(re.findall(r"(?<![\w.,])\d+(?:\.\d+)?(?![\w])", str(trace.header["task"]["question"])))
    used = json.dumps(
        [e["arguments"] for e in trace.of("tool_call")]
        + [[e["url"], e.get("fields"), e.get("filters")] for e in trace.of("state")]
    )
    dropped = sorted(number for number in asked if len(number) >= 3 and number not in used)
    if not dropped or not trace.of("tool_call"):
        return []
    return [
        Hint(
            "self-rewriting",
            f"numbers of the question that appear in no tool call and no state: {', '.join(dropped)}",
            (),
            False,
        )
    ]


def _drift(trace: Trace) -> list[Hint]:
    found: list[Hint] = []
    for before, after in pairwise(trace.of("state")):
        if before["site"] != after["site"]:
            continue
        lost = [
            change["name"]
            for change in after["changed"]
            if change["name"].startswith(("filters.", "fields.")) and change["from"] and not change["to"]
        ]
        if lost:
            found.append(Hint("drift", f"a condition was left: {', '.join(lost)}", (after["n"],)))
    return found


def _criterion(rows: list[list[Event]], metrics: Mapping[str, float | None]) -> list[Hint]:
    hints: list[Hint] = []
    right = {_values(row) for row in rows if row and all(cell["right"] for cell in row)}
    extra = [row for row in rows if row and all(cell.get("reference") is None for cell in row)]
    repeated = sum(_values(row) in right for row in extra)
    if others := len(extra) - repeated:
        hints.append(Hint("criterion mismatch", f"{others} of the answer's rows are not in the reference"))
    item, row_f1, em = (metrics.get(name) for name in ("item_f1", "row_f1", "em"))
    low = (row_f1 is not None and row_f1 < HIGH_ITEM_F1) or em == 0
    faulty = sum(1 for row in rows if row and not all(cell["right"] for cell in row)) - repeated
    if item is not None and item >= HIGH_ITEM_F1 and low:
        what = (
            "rows wrong" if faulty else "right rows repeated" if repeated else "right rows in another order"
        )
        text = f"item F1 is {item:.2f} with {what}: check criterion, dependency and drift before composition"
        hints.append(Hint("criterion mismatch", text))
    return hints


def _values(row: list[Event]) -> tuple[Any, ...]:
    return tuple(cell.get("normalised") for cell in row)


def _misreading(rows: list[list[Event]]) -> list[Hint]:
    hints: list[Hint] = []
    for number, row in enumerate(rows, 1):
        for cell in row:
            given, wanted = _events(cell.get("seen")), _events(cell.get("reference_seen"))
            if not cell["right"] and cell["value"] and (both := given & wanted):
                text = f"row {number}, {cell['column']}: {cell['value']!r} and {cell.get('reference')!r} are in the same output"
                hints.append(Hint("in-page misreading", text, tuple(sorted(both))))
    return hints


def _unclosed(trace: Trace, rows: list[list[Event]]) -> list[Hint]:
    hints: list[Hint] = []
    misses = [e for e in trace.misses if not (e.get("meta") or {}).get("irrelevant")]
    if misses:
        text = f"{pluralize(len(misses), 'tool call')} missed the snapshot"
        hints.append(Hint("retrieval dependency not closed", text, tuple(e["n"] for e in misses)))
    unseen = [c for row in rows for c in row if _is_wrong(c) and not c.get("reference_seen")]
    if unseen:
        names = ", ".join(dict.fromkeys(str(cell["column"]) for cell in unseen))
        text = f"{pluralize(len(unseen), 'right value')} never in a tool's output (columns {names})"
        hints.append(Hint("retrieval dependency not closed", text))
    return hints


def _of_text(trace: Trace, answer: Event | None) -> list[Hint]:
    """Return hints for a text answer. A value never seen may have to be computed, so it blocks no class."""
    from stillweb.harness.scoring.value_search import ToolOutputIndex, accepted_answers

    looked = [one for one in accepted_answers(trace) if one.places is not None]
    if not looked or answer is None:
        return []
    where = set().union(*(_events(one.places) for one in looked))
    if not where:
        text = f"{looked[0].text!r} was never in a tool's output; it may have to be worked out"
        return [Hint("retrieval dependency not closed", text, (), False)]
    both = where & _events(ToolOutputIndex(trace.events).anywhere(answer["text"]))
    if both:
        text = f"{answer['text']!r} and the right answer are in the same output"
        return [Hint("in-page misreading", text, tuple(sorted(both)))]
    return []


def _events(places: list[dict[str, int]] | None) -> set[int]:
    return {place["event"] for place in places or ()}


@dataclass(frozen=True, slots=True)
class Review:
    """Reviewer's judgement of one attempt; the members are those of a `review` event."""

    reviewer: str
    primary: str
    decisive_event: int
    cause: str
    evidence: str
    nearest_class: str
    why_not: str
    override: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members of a `review` event."""
        return {
            "reviewer": self.reviewer,
            "class": self.primary,
            "decisive_event": self.decisive_event,
            "cause": self.cause,
            "evidence": self.evidence,
            "nearest_class": self.nearest_class,
            "why_not": self.why_not,
            "override": self.override,
        }

    @classmethod
    def from_mapping(cls, value: Mapping[str, Any]) -> Review:
        """Make a review from a form or a JSON object. Raise UsageError naming a missing or wrong member."""
        texts: dict[str, str] = {}
        for name in ("reviewer", "class", "cause", "evidence", "nearest_class", "why_not"):
            text = str(value.get(name) or "").strip()
            if not text:
                raise UsageError(f"{name.replace('_', ' ')}: must be filled in")
            texts[name] = text
        number = str(value.get("decisive_event", "")).strip()
        event = whole_number(number)
        if event is None:
            raise UsageError(f"decisive event: must be the number of a step, not {number!r}")
        return cls(
            texts["reviewer"],
            texts["class"],
            event,
            texts["cause"],
            texts["evidence"],
            texts["nearest_class"],
            texts["why_not"],
            str(value.get("override") or "").strip() or None,
        )


def check_review(trace: Trace, review: Review) -> None:
    """Raise UsageError if a review contradicts its trace."""
    for name in (review.primary, review.nearest_class):
        if name not in CLASSES:
            raise UsageError(f"class: {name!r} is none of {', '.join(CLASSES)}")
    if review.primary == review.nearest_class:
        raise UsageError("nearest class: must be another than the class chosen")
    if review.decisive_event > len(trace.events):
        raise UsageError(
            f"decisive event: the trace has {pluralize(len(trace.events), 'step')}, not {review.decisive_event}"
        )
    open_signals = [hint for hint in hints_of(trace) if hint.upstream]
    if review.primary == COMPOSITION and open_signals and not review.override:
        raise UsageError(
            f"{COMPOSITION} can't be chosen while an upstream signal is open ({open_signals[0].text}); "
            "choose another class, or say why it does not matter"
        )


def add_review(path: Path, review: Review, *, of: str = "") -> int:
    """Check a review, append it to the trace at `path`, and return the event's number.

    `of` is the hash of the trace that the reviewer saw, if known.
    """
    trace = read_trace(path)
    _same_attempt(trace, of)
    check_review(trace, review)
    return append_event(path, "review", **review.to_json())


def _same_attempt(trace: Trace, of: str) -> None:
    """Raise UsageError if a review is of another trace: runs of one task set use the same attempt names."""
    if of and of != trace.hash:
        raise UsageError(
            f"{trace.task_id}/{trace.attempt} is not the attempt that was reviewed: that was another run's, or it was "
            "made or scored again since"
        )


def latest_reviews(trace: Trace) -> dict[str, Event]:
    """Return each reviewer's last review of an attempt."""
    return {event["reviewer"]: event for event in trace.of("review")}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two reviewers on the attempts both judged. `kappa` is None if they have none in common."""

    reviewers: tuple[str, str]
    both: int
    agreed: int
    kappa: float | None
    disputed: tuple[str, ...]


def kappa(pairs: list[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two raters: (observed - expected) / (1 - expected), None without pairs.

    If expected agreement is 1 (both used only one class) it is 1.0. Cohen, 1960.
    """
    if not pairs:
        return None
    observed = sum(one == two for one, two in pairs) / len(pairs)
    first, second = Counter(one for one, _ in pairs), Counter(two for _, two in pairs)
    expected = sum(first[name] * second[name] for name in first) / len(pairs) ** 2
    return 1.0 if expected == 1 else (observed - expected) / (1 - expected)


def agreement(path: Path) -> list[Agreement]:
    """Return the agreement of every two reviewers of a run, by name."""
    traces = (trace for _task, _number, trace in RunFiles(path).attempts() if trace is not None)
    return agreement_on(
        {
            f"{trace.task_id}/{trace.attempt}": {
                reviewer: event["class"] for reviewer, event in latest_reviews(trace).items()
            }
            for trace in traces
        }
    )


def agreement_on(reviews: Mapping[str, Mapping[str, str]]) -> list[Agreement]:
    """Return the agreement of every two reviewers, by name. `reviews` maps attempts to reviewers' classes."""
    judged: dict[str, dict[str, str]] = {}
    for attempt, given in reviews.items():
        for reviewer, name in given.items():
            judged.setdefault(reviewer, {})[attempt] = name
    found: list[Agreement] = []
    for one, two in combinations(sorted(judged), 2):
        common = sorted(judged[one].keys() & judged[two].keys())
        pairs = [(judged[one][name], judged[two][name]) for name in common]
        disputed = tuple(name for name, (a, b) in zip(common, pairs, strict=True) if a != b)
        found.append(Agreement((one, two), len(common), len(common) - len(disputed), kappa(pairs), disputed))
    return found


def import_reviews(path: Path, source: Path) -> int:
    """Import the reviews saved by a static page (JSON lines with task and attempt) and return their number.

    DamagedInput and UsageError name file and line; no review is written unless all lines are valid.
    """
    files = RunFiles(path)
    ready: list[tuple[Path, Review]] = []
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedInput(f"{source}: not saved reviews: {not_utf8(error)}") from error
    # Not splitlines(): pasted text may contain U+2028 and other characters that it splits at.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            trace_path = files.trace_path(str(value["task"]), int(value["attempt"]))
            review = Review.from_mapping(value)
        except KeyError as error:
            raise DamagedInput(f"{source}:{number}: not a saved review: it has no member {error}") from error
        except (ValueError, TypeError) as error:
            raise DamagedInput(f"{source}:{number}: not a saved review: {error}") from error
        except UsageError as error:
            raise UsageError(f"{source}:{number}: {error}") from error
        if not trace_path.exists():
            raise UsageError(f"{source}:{number}: the run has no attempt {value['task']}/{value['attempt']}")
        try:
            trace = read_trace(trace_path)
            _same_attempt(trace, str(value.get("trace") or ""))
            check_review(trace, review)
        except UsageError as error:
            raise UsageError(f"{source}:{number}: {error}") from error
        ready.append((trace_path, review))
    if not ready:
        raise DamagedInput(f"{source}: holds no reviews")
    for trace_path, review in ready:
        add_review(trace_path, review)
    return len(ready)
