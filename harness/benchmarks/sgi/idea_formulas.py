"""Objective formulas of SGI-Bench's idea generation, each 0..10, and the verdict of the votes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal

from stillweb.harness.scoring import Embedder
from stillweb.harness.scoring.embeddings import cosine

SECTIONS = (
    "Idea",
    "ImplementationSteps",
    "ImplementationOrder",
    "EvaluationMetrics",
    "Data",
    "ExpectedOutcome",
)
DIMENSIONS = ("effectiveness", "novelty", "detailedness", "feasibility")


def clip(value: float) -> float:
    """Return the value limited to 0..10."""
    return max(0.0, min(10.0, value))


def effectiveness(embedder: Embedder, keywords: Iterable[Any], idea: str) -> float:
    """Return clip(cos(keywords, idea)·10)."""
    a, b = embedder.embed([", ".join(str(word) for word in keywords), idea])
    return clip(cosine(a, b) * 10)


def distance(embedder: Embedder, idea: str, others: Sequence[str]) -> float:
    """Return clip((1 - mean cos(idea, other))·10), 0 without others."""
    if not others:
        return 0.0
    mine, *vectors = embedder.embed([idea, *others])
    return clip((1 - sum(cosine(mine, vector) for vector in vectors) / len(vectors)) * 10)


def completeness(sections: Mapping[str, Any]) -> float:
    """Return the share of the six sections that have content, ·10. `Dataset` is read as `Data`."""
    return sum(bool(section(sections, name)) for name in SECTIONS) / len(SECTIONS) * 10


def completeness_official(sections: Mapping[str, Any]) -> float:
    """Return the official completeness: 10, reduced only by null sections, not by missing or empty ones."""
    names = ("Dataset" if name == "Data" else name for name in SECTIONS)
    return sum(sections.get(name, "") is not None for name in names) / len(SECTIONS) * 10


def section(sections: Mapping[str, Any], name: str) -> Any:
    """Return a section of an idea by name; the prompt of the set says Dataset where its text says Data."""
    return sections.get(name) or (sections.get("Dataset") if name == "Data" else None)


def repetition(embedder: Embedder, idea: str) -> float:
    """Return clip((mean cosine of pairs of sentences - 0.2)·10), for sentences over 10 characters.

    Return 0 below two sentences.
    """
    sentences = [part.strip() for part in re.split(r"[.!?。！？]", idea) if len(part.strip()) > 10]
    if len(sentences) < 2:
        return 0.0
    pairs = [cosine(a, b) for a, b in combinations(embedder.embed(sentences), 2)]
    return clip((sum(pairs) / len(pairs) - 0.2) * 10)


def length_penalty(characters: int) -> float:
    """Return (n-700)/100 over 700 characters, (300-n)/100 below 300, at most 10; 0 for an empty text."""
    if characters == 0:
        return 0.0
    return min(max(characters - 700, 300 - characters, 0) / 100, 10.0)


def detailedness(complete: float, repeated: float, long: float) -> float:
    """Return 0.2·completeness + 0.4·(10 - repetition) + 0.4·(10 - length)."""
    return 0.2 * complete + 0.4 * (10 - repeated) + 0.4 * (10 - long)


def edges(steps: Mapping[str, Any], order: Sequence[Any], *, faithful: bool) -> set[tuple[str, str]]:
    """Return the edges between steps: items `a-b`, or the sequence of the steps listed, else of all steps.

    Faithful: numbers are sorted as text and their order is ignored, also for the fallback to all steps.
    Fixed: the given order is used, and the steps of the fallback are sorted as numbers.
    """
    names = [str(name) for name in steps]
    items = [str(item) for item in order]
    found: set[tuple[str, str]] = set()
    if all(item.isdigit() for item in items):
        listed = [item for item in items if item in names]
        found = set(pairwise(sorted(listed) if faithful else listed))
    else:
        for item in items:
            ends = item.split("-") if faithful else [part.strip() for part in re.split(r"-+>?|→", item)]
            if len(ends) == 2 and all(end in names for end in ends):
                found.add((ends[0], ends[1]))
    return found or set(pairwise(sorted(names) if faithful else sorted(names, key=_natural)))


def _natural(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (10**9, name)


def jaccard(a: set[Any], b: set[Any]) -> float:
    """Return the Jaccard index of two sets, 1 if both are empty."""
    return len(a & b) / len(a | b) if a or b else 1.0


def feasibility(
    steps: Mapping[str, Any],
    order: Sequence[Any],
    gold_steps: Mapping[str, Any],
    gold_order: Sequence[Any],
    *,
    faithful: bool,
) -> float:
    """Return 10·(0.6·Jaccard of edges + 0.4·Jaccard of words), 0 if either side lacks steps or order.

    With one step there are no edges. Faithful: then only the words count, and no words count if a step is not
    text.
    """
    if not (steps and order and gold_steps and gold_order):
        return 0.0
    words, gold_words = _words(steps, faithful), _words(gold_steps, faithful)
    text = jaccard(words, gold_words) if words and gold_words else 0.0
    mine = edges(steps, order, faithful=faithful)
    gold = edges(gold_steps, gold_order, faithful=faithful)
    if faithful and not (mine and gold):
        return 10 * text
    return 10 * (0.6 * jaccard(mine, gold) + 0.4 * text)


def _words(steps: Mapping[str, Any], faithful: bool) -> set[str]:
    if faithful and not all(isinstance(text, str) for text in steps.values()):
        return set()
    joined = " ".join(str(text) for text in steps.values())
    return set(joined.lower().split()) if len(joined.strip()) >= 3 else set()


def verdict(dimension: str, votes: int) -> Literal["win", "tie", "lose"]:
    """Return the verdict of six votes: over 4 win novelty, over 3 the others; 2 or fewer lose."""
    if votes > (4 if dimension == "novelty" else 3):
        return "win"
    return "lose" if votes <= 2 else "tie"
