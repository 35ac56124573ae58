"""SGI-Bench's wet experiments: how the official pattern reads odd protocols."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harness.scoring import Context, Score, score
from harness.scoring.sgi_wet import parse_steps
from harness.task import Task


def scored(gold: str, answer: str, mode: Any = "faithful") -> Score:
    return score(Task("w", "?", {"answer": gold}, "sgi-wet-experiment"), answer, Context(mode=mode))


def test_a_step_without_parameters_is_read_as_the_official_pattern_reads_it() -> None:
    """Its white space takes the line break of the bracket, so that the step goes on to the next one's."""
    gold = 'a = <Wash>(\n)\nb = <Dry>(\n  x="1"\n)\nc = <Weigh>(\n)'
    assert [(s.action, s.inputs) for s in parse_steps(gold, faithful=True)] == [
        ("Wash", {"b": "<Dry>(", "x": "1"}),
        ("Weigh", {}),
    ]
    assert [step.action for step in parse_steps(gold)] == ["Wash", "Dry", "Weigh"]
    got = scored(gold, gold.replace("Dry", "Heat"))
    # One of two steps has another input, and literals may differ; to fixed one of three has another action.
    assert (got.metrics["sequence_similarity"], got.metrics["parameter_accuracy"]) == (1, 1)
    assert got.detail["steps"] == 2
    differs = {entry["metric"]: entry["fixed"] for entry in got.detail["differs"]}
    assert differs["parameter_accuracy"] == pytest.approx(2 / 3)
    assert scored(gold, gold.replace("Dry", "Heat"), "fixed").detail["steps"] == 3


def test_a_word_or_blank_lines_without_end_are_read_within_a_second() -> None:
    start = time.process_time()
    for odd in ("a" * 50_000, "a = <Wash>(" + "\n" * 50_000):
        assert parse_steps(odd) == parse_steps(odd, faithful=True) == []
    assert time.process_time() - start < 1.0
