"""Task sets out of a spreadsheet's CSV: the same tasks as from JSON, each mistake with its line."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.datasets import load_tasks
from stillweb.snapshots.errors import DamagedInput

ROWS: list[dict[str, Any]] = [
    {"id": "office", "question": "Which quay?\nName it.", "answer": ["Quay A", 'Quay "Alpha"'], "start_url": "https://a.test/"},
    {"id": "mass", "question": "How heavy; in g?", "answer": "1,234", "options": {"numeric": True, "tolerance": 0.5}},
    {"id": "007", "question": "Who?", "answer": "007", "urls": ["https://a.test/1", "https://a.test/2"], "meta": {"topic": "spies"}},
    {
        "id": "fleet",
        "question": "List id|minutes.",
        "columns": ["id", "minutes"],
        "row_key": ["id"],
        "ordered": True,
        "fields": {"minutes": {"type": "decimal"}},
        "table": "F-07|12.5\nF-02|14",
    },
]  # fmt: skip


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as a person would write it."""
    found = {}
    for name, value in row.items():
        if name in ("options", "meta"):  # pandas writes True, spreadsheets TRUE
            found |= {f"{name}.{n}": str(v) for n, v in value.items()}
        elif name in ("columns", "row_key"):
            found[name] = "|".join(value)
        elif name == "urls":
            found[name] = " ".join(value)
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def write(path: Path, delimiter: str = ",", bom: bool = False) -> Path:
    rows = [cells(row) for row in ROWS]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("name", "delimiter", "bom"), [("t.csv", ",", False), ("t.csv", ";", True), ("t.csv", "\t", False), ("t.tsv", "\t", True)]
)  # fmt: skip
def test_the_same_tasks_as_from_json(tmp_path: Path, name: str, delimiter: str, bom: bool) -> None:
    plain = tmp_path / "t.jsonl"
    plain.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    found = load_tasks(write(tmp_path / name, delimiter, bom))
    assert found.problems == found.notices == ()
    assert list(found) == list(load_tasks(plain))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,question,answer\na,?,x\nb,?,y,z\n", ":3: has 4 cells, and the first row 3"),
        ("id,question,answer\na,?,x\nb,\n", ":3: not a record of a known task set"),
        ('id,question,answer\na,?,x\nb,"two\nlines",\n', ":3: answer: is missing"),
        ('id,question,answer\na,?,x\nb,"open,y\nc,?,z\n', ":3: not CSV: unexpected end of data"),
        ("id,question,answer,tolerance\na,?,x,\nb,?,y,2\n", ":3: tolerance: unknown field"),
        ("id,question,answer,\na,?,x,\nb,?,y,2\n", ":3: the column of '2' has no name"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_load(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    found = load_tasks(path)
    assert [task.id for task in found] == ["a"]
    assert [str(one).removeprefix(str(path))[: len(problem)] for one in found.problems] == [problem]


def test_what_is_no_csv_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,question,id\na,?,b\n")
    with pytest.raises(DamagedInput, match=r"t\.csv:1: id: is the name of two columns"):
        load_tasks(tmp_path / "t.csv")
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(DamagedInput, match="save it as CSV"):
        load_tasks(tmp_path / "t.xlsx")


def test_a_cell_of_any_length_is_read(tmp_path: Path) -> None:
    long = "a" * 200_000
    (tmp_path / "t.csv").write_text(f"question,answer\n{long},x\n?,y\n")
    assert [len(task.question) for task in load_tasks(tmp_path / "t.csv")] == [200_000, 1]


def test_a_folder_may_hold_csv_files_and_nothing_else_of_a_set(tmp_path):
    (tmp_path / "b.csv").write_text("id,question,answer\nb,Q?,5\n")
    (tmp_path / "a.csv").write_text("id,question,answer\na,Q?,5\n")
    assert [task.id for task in load_tasks(tmp_path)] == ["a", "b"]
    assert [task.id for task in load_tasks(tmp_path, split="b")] == ["b"]
    (tmp_path / "own.jsonl").write_text('{"id": "own", "question": "Q?", "answer": "5"}\n')
    assert [task.id for task in load_tasks(tmp_path)] == ["own"]
