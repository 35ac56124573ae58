"""Side-cars that a model proposes: what it may add, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stillweb.harness.curation.draft import draft_rubric
from stillweb.harness.rubric import FieldRule
from stillweb.snapshots.errors import DamagedInput
from tests.harness.rubric.lakes import task


class Model:
    def __init__(self, answer: Any) -> None:
        self.answer = answer if isinstance(answer, str) else json.dumps(answer)
        self.asked = ""

    def complete(self, messages: Sequence[Any], model: str, temperature: float) -> str:
        self.asked = messages[0]["content"]
        return f"Here it is:\n{self.answer}\n"


def test_a_models_draft_adds_to_what_the_rules_read() -> None:
    sentence = "Names are compared as they are printed on the page."
    model = Model(
        {
            "fields": {"name": {"uppercase": True}, "country": {"type": "date"}},
            "sources": {"fields.name.uppercase": sentence},
        }
    )
    drafted = draft_rubric(task(), model, "some-model")
    assert drafted.origin == "model"
    assert drafted.fields["name"] == FieldRule(uppercase=True)
    assert drafted.fields["country"].aliases == {"U.S.": "United States"}
    assert drafted.sources["fields.name.uppercase"] == sentence
    assert "Alpha" not in model.asked


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("no idea", "not JSON"),
        ({"fields": {"name": {"uppercase": True}}}, "fields.name cites no sentence"),
        ({"fields": {"name": {}}, "sources": {"fields.name": " "}}, "cites a sentence"),
        ({"fields": {"name": {"type": "money"}}}, "type"),
        ({"sources": {"fields.name": "I made this up."}}, "cites a sentence"),
        ({"sources": [1]}, "sources"),
        ({"sources": {"a": 1}}, "sources"),
    ],
)
def test_a_draft_that_is_wrong_is_refused(answer: Any, says: str) -> None:
    with pytest.raises(DamagedInput, match=says):
        draft_rubric(task(), Model(answer), "some-model")


def test_a_draft_takes_no_place_of_what_a_rule_read() -> None:
    model = Model({"columns": ["x"], "row_key": ["name"], "ordered": False})
    drafted = draft_rubric(task(), model, "some-model")
    assert (drafted.columns[0], drafted.row_key, drafted.ordered) == ("lake_id", ("lake_id",), True)
    with pytest.raises(DamagedInput, match="row_key"):
        draft_rubric(
            task(schema=None, row_key=...), Model({"columns": ["x"], "row_key": ["y"]}), "some-model"
        )


def test_a_supposed_key_that_a_draft_names_without_a_sentence_stays_supposed() -> None:
    bare = task(row_key=...)
    assert "row_key" in draft_rubric(bare, Model({"row_key": ["name"]}), "some-model").assumed
    cited = {"row_key": ["name"], "sources": {"row_key": "Sort rows by max depth in descending order."}}
    assert "row_key" not in draft_rubric(bare, Model(cited), "some-model").assumed
