"""Loading: every encoding in which the sets are published, and records that are broken."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.harness.datasets import load_tasks
from stillweb.harness.scoring import find_scorer
from stillweb.harness.task import Task, TaskSet
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError


def sgr(task_id: str = "lake_001", **change: Any) -> dict[str, Any]:
    record = {
        "task_id": task_id,
        "domain": "LAKES",
        "autonomy_type": "ordered table",
        "oracle_output_cardinality": 2,
        "instruction": "List the two deepest lakes.",
        "start_url": "https://lakes.test/",
        "output_format": "name|depth, one a line",
        "oracle_answer": "Alpha|10\nBeta|9",
        "metadata": {"intra_chain": True},
        "rubric": {"normalization": {"schema": ["name", "depth"], "row_key": "Row key: name."}},
    }
    return record | change


def write(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(records[0] if len(records) == 1 else records, ensure_ascii=False), "utf-8")
    else:
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return path


def test_sgr_split_and_json_strings_are_the_same_task(tmp_path: Path) -> None:
    plain = load_tasks(write(tmp_path / "goal.jsonl", [sgr("lake_001-g")]))
    strings = sgr("lake_001-g")
    strings = strings | {name: json.dumps(strings[name]) for name in ("metadata", "rubric")}
    as_text = load_tasks(write(tmp_path / "goal_hf.jsonl", [strings]))
    assert plain[0].to_json() == as_text[0].to_json()
    task = plain[0]
    assert (task.id, task.base, task.meta["variant"], task.scorer) == (
        "lake_001-g",
        "lake_001",
        "goal",
        "table",
    )
    assert task.reference == "Alpha|10\nBeta|9"
    assert "name|depth" in task.question
    assert "lakes.test" not in task.question


def test_a_folder_beside_the_files_of_a_set_is_told_as_not_read(tmp_path: Path) -> None:
    """The Chinese forms of SGR-Bench lie beside the split files, which are read alone."""
    write(tmp_path / "goal.jsonl", [sgr("lake_001-g")])
    write(tmp_path / "data_zh" / "goal" / "lake_001-g.json", [sgr("lake_001-g", instruction="列出")])
    loaded = load_tasks(tmp_path)
    assert len(loaded) == 1
    place = tmp_path / "data_zh"
    assert f"not read: {place}: a folder beside files that are read; name it to read it" in loaded.remarks
    assert load_tasks(place).remarks == []


def test_sgr_folder_of_per_task_files_in_two_languages(tmp_path: Path) -> None:
    for language in ("en", "zh"):
        for split, name in (("goal", "lake_001-g"), ("constraint", "lake_001")):
            write(tmp_path / f"data_{language}" / split / f"{name}.json", [sgr(name)])
    tasks = load_tasks(tmp_path)
    assert sorted(task.id for task in tasks) == ["lake_001", "lake_001-g", "lake_001-g@zh", "lake_001@zh"]
    assert {task.base for task in tasks} == {"lake_001"}
    assert [task.id for task in load_tasks(tmp_path, split="goal")] == ["lake_001-g", "lake_001-g@zh"]
    write(tmp_path / "goal.jsonl", [sgr("lake_001-g")])
    write(tmp_path / "goal_hf.jsonl", [sgr("lake_001-g")])
    with pytest.raises(UsageError, match=r"no file of split 'gaol'; there are goal$"):
        load_tasks(tmp_path, split="gaol")
    assert [task.id for task in load_tasks(tmp_path)] == ["lake_001-g"]


def test_malformed_records_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "goal.jsonl"
    lines = [
        json.dumps(sgr("a")),
        "{broken",
        json.dumps([1]),
        json.dumps(sgr("b") | {"oracle_answer": None}),
        json.dumps(sgr("c") | {"rubric": "not json"}),
        json.dumps(sgr("a")),
        json.dumps(sgr("d", oracle_output_cardinality="many")),
        json.dumps({"nothing": 1}),
        "[" * 100_000,
        json.dumps(sgr("e", colour="red")),
    ]
    path.write_text("\n".join(lines), "utf-8")
    tasks = load_tasks(path)
    assert [task.id for task in tasks] == ["a", "e"]
    assert [(notice.field, notice.message) for notice in tasks.notices] == [
        ("colour", "unknown field, read by nothing (1 record)")
    ]
    places = {(problem.line, problem.field) for problem in tasks.problems}
    assert places == {
        (2, ""),
        (3, ""),
        (4, "oracle_answer"),
        (5, "rubric"),
        (6, "id"),
        (7, "oracle_output_cardinality"),
        (8, ""),
        (9, ""),
    }
    assert all(str(path) in str(problem) for problem in tasks.problems)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda v: st.lists(v, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(
    [*sgr(), "question", "answer", "problem", "urls", "canary", "steps", "idx", "core_idea", "table"]
)


@pytest.mark.slow
@given(st.lists(st.dictionaries(NAMES, JSON, max_size=6) | JSON, min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_a_line_holds_the_good_one_loads(tmp_path: Path, lines: list[Any]) -> None:
    path = write(tmp_path / "x.jsonl", [{"id": "\0good", "question": "q", "answer": "a"}, *lines])
    tasks = load_tasks(path)
    assert tasks[0].id == "\0good"
    assert len(tasks) + len(tasks.problems) == len(lines) + 1
    for task in tasks:
        assert Task.from_json(task.to_json()) == task


def test_what_json_can_not_hold_is_no_record_and_loses_no_other(tmp_path: Path) -> None:
    """Frames of Python and NumPy write NaN; a trace and a hash can hold neither that nor a set."""
    path = tmp_path / "x.jsonl"
    lines = [
        '{"id": "a", "question": "q", "answer": "a"}',
        '{"id": "b", "question": "q", "answer": NaN}',
        '{"id": "c", "question": "q", "answer": 1e999}',
        json.dumps(SGI["sgi-idea-generation"] | {"related_work": "[{1, 2}]"}),
        json.dumps(SGI["sgi-deep-research"] | {"steps": "[" * 100_000}),
        json.dumps(SGI["sgi-idea-generation"] | {"idx": "z", "implementation_steps": "{1: 'x', 10: 'y'}"}),
    ]
    path.write_text("\r\n".join(lines), "utf-8-sig")
    tasks = load_tasks(path)
    assert [task.id for task in tasks] == ["a", "z"]
    assert tasks[1].reference["implementation_steps"] == {"1": "x", "10": "y"}  # as every reader will see it
    assert [(problem.line, problem.message.partition(":")[0]) for problem in tasks.problems] == [
        (2, "not JSON"),
        (3, "holds what JSON can't"),
        (4, "holds what JSON can't"),
        (5, "neither JSON nor a literal"),
    ]
    whole = tmp_path / "whole.json"
    whole.write_text("[" * 100_000, "utf-8")
    with pytest.raises(DamagedInput, match="nested too deeply"):
        load_tasks(whole)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    record = sgr("b")
    del record["oracle_answer"]
    tasks = load_tasks(write(tmp_path / "goal.jsonl", [sgr("a"), record]))
    assert [(problem.line, problem.field) for problem in tasks.problems] == [(2, "oracle_answer")]


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{\n", "utf-8")
    with pytest.raises(DamagedInput, match=r"x\.jsonl:1"):
        load_tasks(path)
    with pytest.raises(UsageError, match="no such file"):
        load_tasks(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="kind"):
        load_tasks(path, kind="other")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [sgr("a"), sgr("b")]
    for record in records:
        record["metadata"] = json.dumps(record["metadata"])
        record["rubric"] = json.dumps(record["rubric"])
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "goal.parquet")
    assert [task.to_json() for task in load_tasks(tmp_path / "goal.parquet")] == [
        task.to_json() for task in load_tasks(write(tmp_path / "goal.jsonl", records))
    ]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DamagedInput, match="not Parquet"):
        load_tasks(tmp_path / "bad.parquet")


def test_splits_as_the_hub_keeps_them(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data").mkdir()
    (tmp_path / "dataset_infos.json").write_text("{}")
    for name in ("test-00000-of-00002", "test-00001-of-00002", "train-00000-of-00001"):
        record = {"id": name, "question": "?", "answer": "x"}
        parquet.write_table(pyarrow.Table.from_pylist([record]), tmp_path / "data" / f"{name}.parquet")
    assert len(load_tasks(tmp_path)) == 3
    assert [t.id for t in load_tasks(tmp_path, split="test")] == [
        "test-00000-of-00002",
        "test-00001-of-00002",
    ]
    assert [t.id for t in load_tasks(tmp_path / "data", split="train")] == ["train-00000-of-00001"]


def test_the_hub_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingCapability, match="pip install"):
        load_tasks("hub:someone/some-set")


HUB = """
import json, sys
from stillweb.harness.datasets import load_tasks
found = [[task.id for task in load_tasks(sys.argv[1], split=split)] for split in (None, "goal")]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_set_on_a_hub_is_read_once_and_again_without_it(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    import os
    import subprocess
    import sys

    import tests.support.hub as support

    files = {
        "README.md": b"a card",
        "goal_hf.jsonl": json.dumps(sgr("lake_001-g")).encode(),
        "constraint_hf.jsonl": json.dumps(sgr("lake_001")).encode(),
    }

    def load(url: str) -> Any:
        env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
        words = [sys.executable, "-c", HUB, "hub:someone/lakes@v1"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    wanted = [["lake_001", "lake_001-g"], ["lake_001-g"]]
    with support.hub("someone/lakes", files) as hub:
        assert load(hub.url) == wanted
        assert any("/revision/v1" in path for path in hub.asked)
        assert not any("README" in path for path in hub.asked)
    assert load(hub.url) == wanted  # the hub is gone: its files are kept


SGI = {
    "sgi-deep-research": {
        "idx": "d1",
        "question": "q",
        "steps": "['one', 'two']",
        "answer": "0.5",
        "discipline": "x",
    },
    "sgi-idea-generation": {
        "idx": "i1",
        "question": "q",
        "core_idea": "An idea.",
        "related_work": "{'a': 'b'}",
        "related_work_test": '{"c": "d"}',
        "existing_solutions": {"e": "f"},
        "keywords": "['k']",
        "implementation_steps": "{'1': 'x', '2': 'y'}",
        "implementation_order": ["1-2"],
    },
    "sgi-dry-experiment": {
        "idx": "e1",
        "question": "q",
        "main_code": "x",
        "incomplete_main_code": "y",
        "incomplete_functions": "['f']",
        **{f"unit_test_{i}_{part}": "z" for i in range(5) for part in ("data", "output")},
    },
    "sgi-wet-experiment": {"idx": "w1", "question": "q", "answer": 'a = <Load>(\n  x="1"\n)'},
}


@pytest.mark.parametrize("name", SGI)
def test_sgi_records_are_told_apart_and_literals_read(tmp_path: Path, name: str) -> None:
    task = load_tasks(write(tmp_path / "x.jsonl", [SGI[name]]))[0]
    assert task.scorer == name
    assert find_scorer(task.scorer)
    # asked as the authors' step 1 asks: the question, and the form of the answer behind it
    assert task.question.startswith("q\n")
    assert ("### Example:\n```json" if name == "sgi-idea-generation" else "<answer>") in task.question
    assert (task.meta["problem"], task.meta["system"]) == ("q", "You are a helpful assistant.")
    if name == "sgi-deep-research":
        assert task.reference == {"answer": "0.5", "steps": ["one", "two"]}
    if name == "sgi-idea-generation":
        assert task.reference["related_work_test"] == {"c": "d"}
        assert task.reference["keywords"] == ["k"]
        assert task.reference["keywords_raw"] == "['k']"


def test_literals_are_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    bad = SGI["sgi-deep-research"] | {"idx": "bad", "steps": f"[open({str(marker)!r}, 'w').write('x')]"}
    tasks = load_tasks(write(tmp_path / "x.jsonl", [SGI["sgi-deep-research"], bad]))
    assert [problem.field for problem in tasks.problems] == ["steps"]
    assert not marker.exists()


def test_generic_records(tmp_path: Path) -> None:
    records = [
        {"id": "e", "question": "2+2?", "answer": "4"},
        {"id": "t", "question": "List.", "columns": ["id", "v"], "table": [["a, b", 1], ["c", 2]]},
        {"id": "p", "question": "Log in.", "scorer": "page", "options": {"expression": "true"}},
        {"id": "m", "question": "x", "answer": "y", "scorer": "my.module:score", "base": "b"},
    ]
    tasks = load_tasks(write(tmp_path / "x.jsonl", records))
    assert [task.scorer for task in tasks] == ["exact", "table", "page", "my.module:score"]
    assert tasks.by_id("t").reference == "a, b|1\nc|2"
    assert tasks.by_id("t").options["rubric"]["row_key"] == ["id"]
    again = load_tasks(write(tmp_path / "y.jsonl", [task.to_json() for task in tasks]))
    assert [task.to_json() for task in again] == [task.to_json() for task in tasks]
    assert again.digest == tasks.digest


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"question": "q", "answer": "a", "colour": 1}, "colour"),
        ({"question": "q"}, "answer"),
        ({"question": "q", "answer": []}, "answer"),
        ({"question": "q", "answer": " "}, "answer"),
        ({"question": "q", "answer": ["x", ""]}, "answer"),
        ({"question": "q", "answer": {"x": 1}}, "answer"),
        ({"question": "q", "reference": ["x", None]}, "reference"),
        ({"question": "q", "answer": "", "scorer": "judge"}, "answer"),
        ({"question": 1, "answer": "a"}, "question"),
        ({"question": "q", "table": [["a"]]}, "columns"),
        ({"question": "q", "table": [["a|b"]], "columns": ["x"]}, "table[0]"),
        ({"question": "q", "answer": "a", "table": "x"}, "table"),
        ({"question": "q", "answer": "a", "meta": [1]}, "meta"),
    ],
)
def test_broken_generic_records(tmp_path: Path, record: dict[str, Any], field: str) -> None:
    tasks = load_tasks(write(tmp_path / "x.jsonl", [{"question": "ok", "answer": "a"}, record]))
    assert [problem.field for problem in tasks.problems] == [field]


def test_a_task_has_one_digest_before_and_after_it_is_written() -> None:
    task = Task("a", "?", {2: ("x",), 10: "y", "n": None}, "my.module:score")
    assert Task.from_json(json.loads(json.dumps(task.to_json()))).digest == task.digest


def test_order_of_tasks_does_not_change_the_digest_of_the_set() -> None:
    one, two = Task("1", "q", "a"), Task("2", "q", "b")
    assert TaskSet("x", (one, two)).digest == TaskSet("y", (two, one)).digest
    assert TaskSet("x", (one,)).digest != TaskSet("x", (two,)).digest


@pytest.mark.parametrize("bad", [[], {}, {"id": 1, "question": "q"}, {"id": "a", "question": "q", "x": 1}])
def test_a_task_refuses_what_it_does_not_know(bad: Any) -> None:
    with pytest.raises(DamagedInput):
        Task.from_json(bad)


def test_a_member_that_stands_twice_is_named_and_none_of_the_two_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    nested = json.dumps(
        {"task_id": "n", "instruction": "?", "oracle_answer": "1", "rubric": '{"a": 1, "a": 2}'}
    )
    path.write_text(
        '{"id": "a", "question": "q", "answer": "x", "answer": "y"}\n'
        '{"id": "b", "question": "q", "answer": "x", "options": {"numeric": false, "numeric": true}}\n'
        f'{nested}\n{{"id": "c", "question": "q", "answer": "x"}}\n'
    )
    found = load_tasks(path)
    assert [task.id for task in found] == ["c"]
    assert [problem.message for problem in found.problems] == [
        "not JSON: the member 'answer' stands twice in an object",
        "not JSON: the member 'numeric' stands twice in an object",
        "the member 'a' stands twice in an object",
    ]
