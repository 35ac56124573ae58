"""Side-cars: what is read by rule or stated, their lint, links and file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.curation.lint import lint
from stillweb.harness.datasets import load_tasks
from stillweb.harness.rubric import Rubric, compile_rubric, compile_rubrics, load_rubrics, save_rubrics
from stillweb.harness.scoring import Context, score
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput
from tests.harness.datasets.test_load import write
from tests.harness.rubric.lakes import REFERENCE, task


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
        ({"colour": 1}, "unknown member 'colour'"),
        ({"ordered": "yes"}, "ordered"),
        ({"header": "maybe"}, "header"),
        ({"fields": {"nothing": {}}}, "fields"),
        (
            {"fields": {"name": {"type": "number"}}},
            "fields.name: Invalid enum value 'number', none of date, decimal, id_list, integer, string - at $.type",
        ),
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


def checks(tasks: list[Task], rubrics: Any = None) -> set[str]:
    return {finding.check for finding in lint(tasks, rubrics)}


@pytest.mark.parametrize(
    ("tasks", "check"),
    [
        ([task(schema=None)], "schema missing"),
        ([task(record_separator="|")], "separators alike"),
        ([task(row_key=...)], "key undefined"),
        ([task(ordering=...)], "order undefined"),
        ([task(), task("lake_001-g", row_key="Use name as the row key.")], "variants disagree"),
        ([task(), task("lake_001-g", reference=REFERENCE + "x")], "variants disagree"),
        ([task(reference="words only")], "reference unreadable"),
        ([task(reference="L1|Alpha")], "reference width"),
        ([task(reference=REFERENCE.replace("L2", "L1"))], "key not unique"),
        ([task(reference=REFERENCE.replace("Peru", ""))], "empty reference cell"),
        ([task(reference=REFERENCE.replace("Peru", ""))], "self-score"),
        ([task(reference=REFERENCE + "\nL3|C|1|2020-01-01|Peru")], "cardinality"),
    ],
)
def test_each_lint_check_can_fail(tasks: list[Task], check: str) -> None:
    assert checks([task(), task("lake_001-g")]) == set()
    assert check in checks(tasks)


def test_other_unread_sentences_are_notes_and_shown_on_request() -> None:
    assert [finding.check for finding in lint([task()], notes=True)] == ["unread rule", "unread rule"]
    assert "name: Names are compared" in str(lint([task()], notes=True)[1])


def test_lint_of_a_file_finds_missing_unused_and_stale_side_cars() -> None:
    rubrics = compile_rubrics([task()])
    assert checks([task()], rubrics) == set()
    assert checks([task()], {}) == {"side-car missing"}
    assert checks([task()], rubrics | {"other": rubrics["lake_001"]}) == {"unused side-car"}
    by_form = {
        "lake_001": rubrics["lake_001"],
        "lake_001-g": replace(
            rubrics["lake_001"], columns=tuple("abcde"), row_key=("a",), fields={}, sources={}
        ),
    }
    assert checks([task(), task("lake_001-g")], by_form) == set()
    by_form["lake_001-g"] = replace(by_form["lake_001-g"], columns=("a", "b"))
    assert checks([task(), task("lake_001-g")], by_form) == {"reference width"}
    assert checks([task("lake_001-g")], {"lake_001-g": rubrics["lake_001"]}) == set()
    stale = replace(rubrics["lake_001"], sources={"row_key": "A sentence of last year."})
    assert checks([task()], {"lake_001": stale}) == {"stale link"}


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
