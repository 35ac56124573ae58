"""Later records of SGR-Bench state columns, key and rules of fields; their oracle has a header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.curation.lint import lint
from stillweb.harness.datasets import load_tasks
from stillweb.harness.rubric import compile_rubric
from stillweb.harness.scoring import score
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput
from tests.harness.datasets.test_load import write

RUBRIC: dict[str, Any] = {
    "status": "deterministic_explicit",
    "columns": ["site", "depth_m", "temp_C", "ids"],
    "row_key": ["site", "depth_m"],
    "fields": {
        "site": {"type": "string", "uppercase": True, "aliases": {"N Basin": "North Basin"}},
        "depth_m": {"type": "integer"},
        "temp_C": {
            "type": "decimal",
            "units": {
                "deg C": {},
                "deg F": {"offset": 32, "scale_num": 5, "scale_den": 9},
                "mK": {"scale_den": 1000},
            },
        },
        "ids": {"type": "id_list", "semantics": "Compare the membership set; order is presentation."},
    },
    "sorting": "site, then depth; P.O.A. on complete identities",
    "precision": "Compare predicted decimals exactly without further rounding.",
}
ORACLE = "site|depth_m|temp_C|ids\nNorth Basin|5|10|a; b\nSouth Basin|5|0.5|c"


def record(**members: Any) -> dict[str, Any]:
    return {
        "task_id": "lake_900",
        "instruction": "List the basins.",
        "output_format": "Return a pipe-separated table with header site|depth_m|temp_C|ids.",
        "oracle_answer": ORACLE,
        "oracle_output_cardinality": 2,
        "rubric": RUBRIC,
        **members,
    }


def load(folder: Path, **members: Any) -> Task:
    return load_tasks(write(folder / "goal.jsonl", [record(**members)]))[0]


@pytest.mark.parametrize("as_text", [False, True])
def test_stated_rules_are_taken_over(tmp_path: Path, as_text: bool) -> None:
    task = load(tmp_path, rubric=json.dumps(RUBRIC) if as_text else RUBRIC)
    rubric = compile_rubric(task)
    assert (rubric.columns, rubric.row_key) == (("site", "depth_m", "temp_C", "ids"), ("site", "depth_m"))
    assert rubric.assumed == ()
    assert rubric.ordered
    assert {name: rule.type for name, rule in rubric.fields.items()} == {
        "site": "string",
        "depth_m": "integer",
        "temp_C": "decimal",
        "ids": "id_list",
    }
    assert score(task, ORACLE).metrics["em"] == 1
    assert score(task, ORACLE).metrics["raw_em"] == 1
    answer = "N BASIN|5|50 deg F|b, a\nsouth basin|5|500 mK|c"
    got = score(task, answer)
    assert (got.metrics["em"], got.metrics["raw_em"]) == (1, 0)
    assert (
        score(task, answer.replace("50 deg F", "51 deg F")).metrics["item_f1"] == 7 / 8
    )  # 10.555… has no end


def test_a_side_car_of_stated_rules_links_to_nothing_that_is_gone(tmp_path: Path) -> None:
    task = load(tmp_path)
    rubrics = {"lake_900": compile_rubric(task)}
    assert "stale link" not in {finding.check for finding in lint([task], rubrics)}
    otherwise = load(tmp_path, rubric=RUBRIC | {"row_key": ["site"], "fields": {}})
    links = [finding.message for finding in lint([otherwise], rubrics) if finding.check == "stale link"]
    assert any("row_key" in link for link in links)
    assert any("fields.temp_C.units" in link for link in links)


def test_a_header_that_only_the_oracle_and_the_format_name_is_one(tmp_path: Path) -> None:
    task = load(tmp_path, rubric={})
    rubric = compile_rubric(task)
    assert rubric.columns == ("site", "depth_m", "temp_C", "ids")
    assert "columns" not in rubric.assumed
    assert score(task, ORACLE.partition("\n")[2]).metrics["em"] == 1
    plain = load(tmp_path, rubric={}, oracle_answer=ORACLE.partition("\n")[2])
    assert compile_rubric(plain).columns == ("column 1", "column 2", "column 3", "column 4")


@pytest.mark.parametrize(
    "change",
    [
        {"fields": [{"name": "depth_m", "type": "float"}]},
        {"fields": {"depth_m": "float"}},
        {
            "columns": [{"name": "site"}, {"name": "depth_m", "type": "number"}, "temp_C", "ids"],
            "fields": None,
        },
    ],
)
def test_types_of_columns_are_read_in_any_form(change: dict[str, Any], tmp_path: Path) -> None:
    rubric = compile_rubric(load(tmp_path, rubric=RUBRIC | change))
    assert rubric.fields["depth_m"].type == "decimal"
    assert rubric.unread == (f"precision: {RUBRIC['precision']}",)


@pytest.mark.parametrize(
    ("change", "unread"),
    [
        ({"row_key": ["site", "nothing"]}, "row_key: ['site', 'nothing']"),
        ({"fields": {"nowhere": {"type": "string"}}}, 'nowhere: {"type": "string"}'),
        ({"fields": {"site": {"type": "colour"}}}, 'site: type: "colour"'),
        ({"fields": {"site": {"tolerance": 0.1}}}, "site: tolerance: 0.1"),
        ({"fields": [{"name": "site", "tolerance": 0.1}]}, "site: tolerance: 0.1"),
        ({"fields": [{"type": "string"}]}, 'fields: {"type": "string"}'),
        ({"fields": "all text"}, 'fields: "all text"'),
        ({"ordered": "yes"}, 'ordered: "yes"'),
        ({"fields": {"temp_C": {"units": {"K": {"add": 273}}}}}, 'temp_C: units: {"K": {"add": 273}}'),
    ],
)
def test_what_a_side_car_can_not_say_is_named(change: dict[str, Any], unread: str, tmp_path: Path) -> None:
    task = load(tmp_path, rubric=RUBRIC | change)
    assert unread in compile_rubric(task).unread
    assert any(unread in finding.message for finding in lint([task], notes=True))


def test_lint_names_an_unread_sentence_that_decides_a_score(tmp_path: Path) -> None:
    said = {
        "temp_C": "Values within 0.1 of the reference are right.",
        "notes": ["Round to two places before the comparison.", "See the catalogue for background."],
    }
    task = load(tmp_path, rubric={"normalization": {"schema": RUBRIC["columns"], "row_key": "site", **said}})
    found = [f for f in lint([task]) if f.check == "unread rule"]
    assert {finding.level for finding in found} == {"warning"}
    assert [text in "".join(f.message for f in found) for text in (said["temp_C"], *said["notes"])] == [
        True,
        True,
        False,
    ]
    assert "note: unread rule: notes: See the catalogue" in "\n".join(map(str, lint([task], notes=True)))


@pytest.mark.parametrize(
    "unit",
    [
        {"to": "m", "factor": "1/0"},
        {"to": "m", "factor": "5/9/2"},
        {"to": "m", "factor": "-1"},
        {"to": "m", "offset": "x"},
        {"to": "m", "factor": "1e5000"},
        {"to": "m", "shift": "1"},
    ],
)
def test_a_conversion_that_is_none_is_refused(unit: dict[str, str]) -> None:
    from stillweb.harness.rubric import FieldRule

    with pytest.raises(DamagedInput, match=r"fields\.x\.units"):
        FieldRule.from_json({"units": {"k": unit}}, "fields.x")
