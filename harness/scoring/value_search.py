"""Search for values in the outputs of an attempt's tool calls, and the expected answers of text tasks."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stillweb.harness.rubric.normalise import spellings
from stillweb.harness.rubric.spelling import IN_WORD
from stillweb.harness.scoring import BEST, TEXTUAL
from stillweb.harness.trace import Trace

Place = dict[str, int]  # {"event": n, "at": code points into that event's output text}


class ToolOutputIndex:
    """Index over the tool outputs of one trace. Each value is searched once.

    Comparison folds case, width (NFKC of single characters, so that offsets stay true) and thousands
    separators in numbers, and takes white space as one blank. Among Han and kana, which have no blanks, a
    word may stand anywhere.
    """

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self._texts = [
            (event["n"], _fold(event["output"]["text"]))
            for event in events
            if event["event"] == "tool_call" and not event["error"]
        ]
        self._found: dict[str, list[Place]] = {}

    def places(self, value: str | None, most: int = 3) -> list[Place]:
        """Return the first places of a value, the earliest event first; [] for an empty or unseen value."""
        wanted = " ".join(_fold(value or "").split())
        if not wanted:
            return []
        if wanted not in self._found:
            self._found[wanted] = self._search(wanted, most)
        return self._found[wanted]

    def anywhere(self, value: str | None) -> list[Place]:
        """Return where a value was seen as it is written, else where another spelling of it was seen."""
        found = self.places(value)
        others = iter(()) if found or not value else spellings(value)
        return next(filter(None, map(self.places, others)), found)

    def _search(self, wanted: str, most: int) -> list[Place]:
        forms = [r"\s+".join(map(re.escape, wanted.split()))]
        # a text without any of these parts can't match: faster than the pattern
        parts = [max(wanted.split(), key=len)]
        if re.fullmatch(r"[1-9]\d{3,40}(\.\d+)?", wanted):
            whole, dot, rest = wanted.partition(".")
            parts.append(re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", whole) + dot + rest)
            forms.append(re.escape(parts[1]))
        elif re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", wanted):
            parts.append(wanted.replace(",", ""))
            forms.append(re.escape(parts[1]))
        likely = [(n, text) for n, text in self._texts if any(part in text for part in parts)]
        if not likely:
            return []
        # Digits must not continue: 12 is not seen in 312, in 12.5 or in 1,012.
        pattern = re.compile(
            rf"(?<!{IN_WORD})(?<!\d[.,])(?:" + "|".join(forms) + rf")(?!{IN_WORD})(?![.,]\d)"
        )
        found: list[Place] = []
        for n, text in likely:
            if match := pattern.search(text):
                found.append({"event": n, "at": match.start()})
                if len(found) == most:
                    break
        return found


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return "".join(_fold_one(character) for character in text)


def _fold_one(character: str) -> str:
    if character.isascii():
        return character.lower()
    folded = unicodedata.normalize("NFKC", character).lower()
    return folded if len(folded) == 1 else character


_MOST = 100  # characters; a page doesn't show a longer text word for word


@dataclass(frozen=True, slots=True)
class ExpectedAnswer:
    """Accepted answer. `seen` are its places in tools' outputs, None if not searched.

    Outputs are not searched for a right answer, a long text, or an answer that the question holds (`asked`).
    """

    text: str
    places: list[Place] | None = None
    in_question: bool = False


def accepted_answers(trace: Trace) -> list[ExpectedAnswer]:
    """Return the accepted answers of a task whose answer is not a table; [] if they are not text."""
    task: dict[str, Any] = trace.header["task"]
    answer, score = trace.last("answer") or {}, trace.last("score") or {}
    reference = task.get("reference")
    values = reference if isinstance(reference, list) else [reference]
    if answer.get("rows") or not all(isinstance(one, str | int | float) for one in values):
        return []
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    if is_right(trace) or task.get("scorer") not in TEXTUAL or score.get("status") == "unsolvable":
        return [ExpectedAnswer(text) for text in texts]
    seen, question = ToolOutputIndex(trace.events), ToolOutputIndex([_as_output(task["question"])])
    return [
        ExpectedAnswer(text)
        if len(text) > _MOST
        else ExpectedAnswer(text, in_question=True)
        if question.anywhere(text)
        else ExpectedAnswer(text, seen.anywhere(text))
        for text in texts
    ]


def _as_output(text: str) -> dict[str, Any]:
    return {"event": "tool_call", "n": 0, "error": False, "output": {"text": text}}


def is_right(trace: Trace) -> bool:
    """Return True if all metrics have their best value, except raw and forgiven ones and the order.

    The required order is part of em. The share of ordered pairs is 0 for one row, and arbitrary if no order
    is required.
    """
    score = trace.last("score")
    if score is None or score["status"] != "scored":
        return False
    plain = [
        value
        for name, value in score["metrics"].items()
        if not name.startswith(("raw_", "forgiven_")) and name != "order_accuracy"
    ]
    best = BEST.get(trace.header["task"].get("scorer", ""), 1.0)
    return bool(plain) and all(value == best for value in plain)
