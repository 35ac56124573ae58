"""The lint of side-cars: each check can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stillweb.harness.curation.lint import lint
from stillweb.harness.rubric import compile_rubrics
from stillweb.harness.task import Task
from tests.harness.rubric.lakes import REFERENCE, task


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
