"""Official reading of an idea by SGI-Bench's scorer: strict JSON, else sections found by patterns.

If neither the first fence nor the whole answer is JSON (prose around it, a backslash of a formula, a
truncated text), each section is searched separately: under its quoted name, up to the next quote of any kind;
else as a numbered heading, up to the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.S)
_HOW = re.S | re.I


def official_reading(answer: str) -> Any:
    """Return the JSON of an answer, of any type, or else an object of the sections found in it."""
    fenced = _FENCE.search(answer)
    for text in ([fenced[1].strip()] if fenced else []) + [answer]:
        try:
            return json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            continue
    found: dict[str, Any] = {}
    for name, (named, heading, following, read) in _SECTIONS.items():
        for text in _places(answer, named, heading, following):
            if (value := read(text)) is not None:
                found[name] = value
                break
    return found


def _places(answer: str, named: str, heading: str, following: str) -> Iterator[str]:
    """Yield the text of a section by each of the two patterns."""
    if quoted := re.search(named, answer, _HOW):
        yield quoted[1].strip()
    begun = re.search(rf"{heading}([:\s-]+)", answer, _HOW)
    if begun is None:
        return
    # The last line break before the next heading; an earlier one gives the same text after strip().
    next_one = re.compile(rf"\n[^\S\n]*(?:{following})" if following else r"\Z", re.I)
    ended = next_one.search(answer, begun.end()) or next_one.search(answer, begun.start(1) + 1)
    if ended:
        yield answer[begun.end() : max(ended.start(), begun.end())].strip()


def _steps(text: str) -> dict[str, str] | None:
    pairs = re.findall(r"[\"'](\d+)[\"']\s*:\s*[\"'](.*?)[\"']", text)
    return {number: step.strip() for number, step in pairs} or None


def _order(text: str) -> list[str] | None:
    return re.findall(r"[\"']([^\"']+)[\"']", text) or None


def _metrics(text: str) -> dict[str, str] | None:
    pairs = re.findall(r"[\"']([^\"']+)[\"']\s*:\s*[\"'](.*?)[\"']", text)
    return {name.strip(): said.strip() for name, said in pairs} or None


_TEXT = r"[\"']?\s*:\s*[\"'](.*?)[\"']"
_ENTRIES = r"[\"']?\s*:\s*\{(.*?)\}"
_MORE = r"(?=\s*,\s*[\"'])"  # a further member; otherwise the pattern continues to a later end

# Section -> pattern by name, numbered heading, what follows that, and the parser of its text.
_SECTIONS: dict[str, tuple[str, str, str, Callable[[str], Any]]] = {
    "Idea": ("Idea" + _TEXT, r"1\.\s*Idea", r"2\.|Implementation", str),
    "ImplementationSteps": (
        "ImplementationSteps" + _ENTRIES,
        r"2\.\s*Implementation Steps",
        r"3\.|Implementation Order",
        _steps,
    ),
    "ImplementationOrder": (
        r"ImplementationOrder[\"']?\s*:\s*\[(.*?)\]",
        r"3\.\s*Implementation Order",
        r"4\.|Dataset",
        _order,
    ),
    "Dataset": ("Dataset" + _TEXT + _MORE, r"4\.\s*Dataset", r"5\.|Evaluation", str),
    "EvaluationMetrics": (
        "EvaluationMetrics" + _ENTRIES + _MORE,
        r"5\.\s*Evaluation Metrics",
        r"6\.|Expected",
        _metrics,
    ),
    "ExpectedOutcome": ("ExpectedOutcome" + _TEXT, r"6\.\s*Expected Outcome", "", str),
}
