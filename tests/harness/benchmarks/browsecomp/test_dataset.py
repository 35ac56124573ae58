"""BrowseComp Long Context: rows are decrypted, read, and refused by the field that is wrong."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.benchmarks.browsecomp.dataset import decrypt, derive_key
from stillweb.harness.datasets import load_tasks
from tests.harness.datasets.test_load import write

VECTORS = Path(__file__).parents[2] / "vectors"


def encrypt(text: str, password: str) -> str:
    """Inverse of `decrypt`."""
    data = text.encode()
    return base64.b64encode(
        bytes(a ^ b for a, b in zip(data, derive_key(password, len(data)), strict=True))
    ).decode()


@pytest.mark.parametrize("case", json.loads((VECTORS / "bclc_decrypt.json").read_text()))
def test_decrypt_vectors(case: dict[str, str]) -> None:
    assert decrypt(case["ciphertext"], case["password"]) == case["plaintext"]
    assert encrypt(case["plaintext"], case["password"]) == case["ciphertext"]


@pytest.mark.parametrize("case", json.loads((VECTORS / "bclc_derive_key.json").read_text()))
def test_key_vectors(case: dict[str, Any]) -> None:
    assert derive_key(case["password"], case["length"]).hex() == case["hex"]


@given(st.text(alphabet=st.characters(codec="utf-8")), st.text(alphabet=st.characters(codec="utf-8")))
def test_encryption_round_trip(text: str, password: str) -> None:
    assert decrypt(encrypt(text, password), password) == text


def bclc(urls: Any, canary: str = "c-1") -> dict[str, str]:
    return {
        "problem": encrypt("Which lake?", canary),
        "answer": encrypt("Alpha", canary),
        "urls": encrypt(urls if isinstance(urls, str) else json.dumps(urls), canary),
        "canary": canary,
    }


def test_base64_may_be_broken_into_lines(tmp_path: Path) -> None:
    row = bclc([["https://a.test/", True]])
    for name in ("problem", "answer", "urls"):
        row[name] = "\r\n".join(row[name][at : at + 5] for at in range(0, len(row[name]), 5)) + "\n"
    task = load_tasks(write(tmp_path / "x.jsonl", [row]))[0]
    assert (task.question, task.reference, len(task.meta["urls"])) == ("Which lake?", "Alpha", 1)
    assert (
        load_tasks(write(tmp_path / "y.jsonl", [row, row | {"answer": "%%"}])).problems[0].field == "answer"
    )


def test_the_original_browsecomp_file_is_a_browsing_set(tmp_path: Path) -> None:
    row = bclc([])
    path = tmp_path / "browse_comp_test_set.csv"
    path.write_text(
        f"problem,answer,problem_topic,canary\n{row['problem']},{row['answer']},Lakes,{row['canary']}\n"
    )
    tasks = load_tasks(path)
    assert tasks.notices == ()
    task = tasks[0]
    assert task.question.startswith(
        "Which lake?\n\nYour response should be in the following format:\nExplanation: {"
    )
    assert (task.reference, task.scorer) == ("Alpha", "browsecomp")
    assert task.meta == {"set": "browsecomp", "problem": "Which lake?", "topic": "Lakes", "canary": "c-1"}


@pytest.mark.parametrize(
    "urls",
    [
        [["https://a.test/", "required"], ["https://b.test/", "additional"]],
        [["https://a.test/", True], ["https://b.test/", False]],
        "[('https://a.test/', 'required'), ('https://b.test/', False)]",
    ],
)
def test_browsecomp_rows(tmp_path: Path, urls: Any) -> None:
    tasks = load_tasks(write(tmp_path / "x.jsonl", [bclc(urls)]))
    assert tasks[0].meta["urls"] == [["https://a.test/", "required"], ["https://b.test/", "additional"]]
    assert (tasks[0].question, tasks[0].reference, tasks[0].scorer) == ("Which lake?", "Alpha", "browsecomp")
    assert tasks[0].id == load_tasks(write(tmp_path / "y.jsonl", [bclc(urls, "other")]))[0].id


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"problem": "???"}, "problem"),
        ({"canary": "wrong"}, "problem"),
        ({"urls": encrypt("[['https://a.test/', 'maybe']]", "c-1")}, "urls[0]"),
        ({"urls": encrypt("[['https://a.test/']]", "c-1")}, "urls[0]"),
        ({"urls": encrypt("__import__('os')", "c-1")}, "urls"),
    ],
)
def test_broken_browsecomp_rows_name_the_field(tmp_path: Path, change: dict[str, str], field: str) -> None:
    good = bclc([["https://a.test/", "required"]])
    tasks = load_tasks(
        write(tmp_path / "x.jsonl", [bclc([["https://b.test/", True]]) | {"id": "ok"}, good | change])
    )
    assert len(tasks) == 1
    assert tasks.problems[0].line == 2
    assert tasks.problems[0].field == field
