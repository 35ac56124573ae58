"""Side-cars: what is read by rule, its links, and the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.rubric import Rubric, compile_rubric, compile_rubrics, load_rubrics, save_rubrics
from stillweb.harness.scoring import Context, score
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput
from tests.harness.rubric.lakes import task


def test_rules_that_can_be_read() -> None:
    rubric = compile_rubric(task())
    assert rubric.columns == ("lake_id", "name", "max depth", "surveyed", "country")
    assert (rubric.row_key, rubric.ordered, rubric.header, rubric.record_separator) == (
        ("lake_id",),
        True,
        "forbidden",
        "\n",
    )
    assert rubric.fields["max depth"].type == "decimal"
    assert rubric.fields["max depth"].units == {"m": "m", "metres": "m", "meters": "m"}
    assert rubric.fields["surveyed"].type == "date"
    assert rubric.fields["country"].aliases == {"U.S.": "United States"}
    assert rubric.assumed == ()


def test_each_rule_names_its_sentence_and_the_rest_is_listed() -> None:
    rubric = compile_rubric(task())
    assert rubric.sources["row_key"] == "Use lake_id as the row key."
    assert rubric.sources["fields.country.aliases"] == "Treat 'U.S.' as 'United States'."
    assert rubric.sources["fields.max depth.units"].startswith("The units 'm'")
    assert rubric.unread == (
        "country: Do not treat 'UK' as 'England'.",
        "name: Names are compared as they are printed on the page.",
    )


def test_the_compiled_rules_decide_scores() -> None:
    answer = "L1|Alpha|10.50 metres|January 31, 2020|U.S.\nL2|Beta|9 m|2021-12-01|Peru"
    assert score(task(), answer, Context()).metrics["em"] == 1
    assert score(task(country=...), answer, Context()).metrics["em"] == 0


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ({"row_key": ["lake_id", "name"]}, ("lake_id", "name")),
        ({"row_key": ..., "deduplication": "Deduplicate by name and country."}, ("name", "country")),
        ({"row_key": ..., "notes": "Align rows by Lake ID."}, ("lake_id",)),
        (
            {"row_key": ..., "deduplication": "One row per country.", "notes": "Rows are keyed by name."},
            ("name",),
        ),
        ({"row_key": "The primary key is max_depth."}, ("max depth",)),
    ],
)
def test_keys(rules: dict[str, Any], key: tuple[str, ...]) -> None:
    rubric = compile_rubric(task(**rules))
    assert rubric.row_key == key
    assert "row_key" in rubric.sources


@pytest.mark.parametrize(
    ("sentence", "ordered"),
    [
        ("Order does not matter.", False),
        ("Rows may come in any order.", False),
        ("Row order is ignored: ignore row order.", False),
        ("Row order is ignored.", False),
        ("The order of the rows does not matter.", False),
        ("The order is irrelevant.", False),
        ("In no particular order.", False),
        ("Rows need not be sorted.", False),
        ("Sorting is not required.", False),
        ("The row ordering should be ignored.", False),
        ("Keep rows ordered by name.", True),
        ("Sort by name; ties may come in any order.", True),
        ("Ties may come in any order; sort by name.", True),
    ],
)
def test_order(sentence: str, ordered: bool) -> None:
    for rubric in (
        compile_rubric(task(ordering=sentence)),
        compile_rubric(task(ordering=..., rules=sentence)),
    ):
        assert (rubric.ordered, "ordered" in rubric.assumed) == (ordered, False)


def test_a_negated_sentence_does_not_say_that_order_counts() -> None:
    rubric = compile_rubric(task(ordering=..., rules="Do not sort the rows."))
    assert "ordered" in rubric.assumed
    assert "rules: Do not sort the rows." in rubric.unread


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("No header row.", "forbidden"),
        ("A header row is optional.", "optional"),
        ("Include the header.", "required"),
        (False, "forbidden"),
        (True, "required"),
        (None, "optional"),
        ("不要输出表头", "forbidden"),
    ],
)
def test_header(value: Any, header: str) -> None:
    assert compile_rubric(task(header_row=value)).header == header


@pytest.mark.parametrize(
    ("sentence", "aliases"),
    [
        ('"US" and "USA" are equivalent.', {"USA": "US"}),
        ('"United States" may be written as "US".', {"US": "United States"}),
        ("Map 'US' to 'United States'.", {"US": "United States"}),
        ("'US' -> 'United States'", {"US": "United States"}),
        ("Treat 'U. S.' as 'United States', e.g. in headings. Keep the rest.", {"U. S.": "United States"}),
        ("Accept 'US' or 'USA' for 'United States'.", {"US": "United States", "USA": "United States"}),
        ("'US' is mentioned here beside 'Peru'.", {}),
        ("'US' is not the same as 'Peru'.", {}),
        ("'US' = 'USA'", {"USA": "US"}),
        ("Both 'US' and 'USA' are accepted.", {"USA": "US"}),
        ("Include both 'US' and 'Peru'.", {}),
        ("Only rows with country = 'US' or 'Peru'.", {}),
        ("The country equals 'US' or 'Peru'.", {}),
    ],
)
def test_aliases(sentence: str, aliases: dict[str, str]) -> None:
    rules = compile_rubric(task(country=sentence)).fields
    assert dict(rules["country"].aliases if "country" in rules else {}) == aliases


@pytest.mark.parametrize(
    "sentence",
    [
        "Convert units 'km' to 'm'.",
        "'km' equals 1000 'm' (units).",
        "Units: 'km' and 'm' are equivalent times 1000.",
    ],
)
def test_another_unit_is_not_another_spelling(sentence: str) -> None:
    """5 km is not 5 m: a factor that no rule reads leaves the sentence to people."""
    rubric = compile_rubric(task(**{"max depth": sentence}))
    assert "max depth" not in rubric.fields or not rubric.fields["max depth"].units
    assert any(sentence in unread for unread in rubric.unread)


def test_what_no_sentence_says_is_supposed_and_said() -> None:
    bare = compile_rubric(task(**dict.fromkeys(("schema", "row_key", "ordering"), ...)))
    assert bare.columns[0] == "column 1"
    assert bare.row_key == ("column 1",)
    assert bare.assumed == ("columns", "row_key", "ordered")
    assert compile_rubric(Task("x", "?", "a|1\na|2", "table")).row_key == ("column 1", "column 2")


def test_one_side_car_a_base_from_the_english_constraint_form() -> None:
    chinese = task("lake_001", row_key="按名称")
    chinese.meta["language"] = "zh"
    rubrics = compile_rubrics([chinese, task("lake_001-g", row_key="Use name as the row key."), task()])
    assert list(rubrics) == ["lake_001"]
    assert rubrics["lake_001"].row_key == ("lake_id",)


def test_the_file_that_a_person_edits(tmp_path: Path) -> None:
    path = tmp_path / "rubrics.json"
    rubrics = compile_rubrics([task()])
    save_rubrics(path, rubrics)
    assert load_rubrics(path) == rubrics
    before = path.read_bytes()
    save_rubrics(path, load_rubrics(path))
    assert path.read_bytes() == before
    document = json.loads(before)
    document["rubrics"]["lake_001"]["fields"]["country"]["aliases"]["USA"] = "United States"
    path.write_text(json.dumps(document))
    edited = load_rubrics(path)["lake_001"]
    assert edited.digest != rubrics["lake_001"].digest
    assert (
        replace(rubrics["lake_001"], sources={}, unread=(), origin="person").digest
        == rubrics["lake_001"].digest
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"columns": []}, "columns"),
        ({"columns": ["a", "a"]}, "columns"),
        ({"row_key": ["nothing"]}, "'nothing' is not a column"),
        ({"row_key": []}, "row_key"),
        ({"colour": 1}, "colour: unknown"),
        ({"ordered": "yes"}, "ordered"),
        ({"header": "maybe"}, "header"),
        ({"fields": {"nothing": {}}}, "fields"),
        ({"fields": {"name": {"type": "number"}}}, "fields.name.type"),
        ({"fields": {"name": {"aliases": {"a": 1}}}}, "aliases"),
        ({"fields": {"name": {"units": {"a": {"to": "b", "factor": "x"}}}}}, "factor"),
        ({"fields": {"name": {"units": {"a": {"of": "b"}}}}}, "units"),
        ({"fields": {"name": {"units": {"a": {"to": "b", "factor": 0.001}}}}}, "factor: 0.001"),
        ({"fields": {"name": {"units": {"a": {"to": "b", "factor": "0"}}}}}, "factor: '0'"),
        ({"field_separator": "\n"}, "field_separator"),
        ({"sources": ["x"]}, "sources"),
        ({"sources": {"row_key": 5}}, "sources"),
        ({"unread": 5}, "unread"),
        ({"assumed": "columns"}, "assumed"),
    ],
)
def test_a_side_car_that_is_wrong_names_the_member(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    value = compile_rubric(task()).to_json() | change
    path = tmp_path / "rubrics.json"
    path.write_text(json.dumps({"version": 1, "rubrics": {"lake_001": value}}))
    with pytest.raises(DamagedInput) as error:
        load_rubrics(path)
    assert says in str(error.value)
    assert "rubrics.json" in str(error.value)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 2, "rubrics": {}}', '{"version": 1, "rubrics": []}']
)
def test_a_file_that_is_no_file_of_side_cars(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DamagedInput, match=r"x\.json"):
        load_rubrics(path)


def test_digest_ignores_what_decides_nothing() -> None:
    one = Rubric(("a",), ("a",))
    assert replace(one, origin="person").digest == one.digest
    assert replace(one, ordered=False).digest != one.digest


def test_a_member_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rubrics.json"
    path.write_text(
        '{"version": 1, "rubrics": {"a": {"columns": ["x"], "columns": ["y"], "row_key": ["y"]}}}'
    )
    with pytest.raises(DamagedInput, match="the member 'columns' stands twice"):
        load_rubrics(path)
