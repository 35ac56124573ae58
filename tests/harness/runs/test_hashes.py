"""What a hash of sources covers: a file that moved out of its folder would be missed by nobody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stillweb.harness.runs import hashes

HARNESS = Path(hashes.__file__).parents[1]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "harness"
    shutil.copytree(HARNESS, copy, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    monkeypatch.setattr(hashes, "_HARNESS", copy)
    return copy


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("scoring/judging.py", True),
        ("scoring/value_search.py", True),
        ("scoring/grader.json", True),
        ("rubric/rules.py", True),
        ("rubric/spelling.py", True),
        ("sandbox/running.py", True),
        ("sandbox/launcher.py", True),
        ("task.py", True),
        ("curation/lint.py", False),
        ("view/static/view.css", False),
    ],
)
def test_the_evaluator_is_what_turns_an_answer_into_a_score(copied: Path, name: str, covered: bool) -> None:
    before = hashes.evaluator_hash.__wrapped__()
    with (copied / name).open("a") as file:
        file.write("\n")
    assert (hashes.evaluator_hash.__wrapped__() != before) is covered
