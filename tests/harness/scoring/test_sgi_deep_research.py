"""SGI-Bench's deep research: judgements in other words than the two that there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.scoring.test_sgi import research


@pytest.mark.parametrize("word", ["maybe", "Correct", None, 1])
def test_a_judgement_in_another_word_is_incorrect_to_the_official_scorer_and_none_to_fixed(word: Any) -> None:
    said = json.dumps([{"judge": "correct"}, {"judge": word}])
    got, _ = research("<answer>0.25</answer>", said)
    assert (got.metrics["step_accuracy"], got.detail["fault"]) == (0.5, "judge")
    assert "step 2" in got.detail["problems"][0]
    fixed, _ = research("<answer>0.25</answer>", said, mode="fixed")
    assert (fixed.metrics, fixed.status) == ({"em": 1.0, "step_accuracy": None}, "scored")
