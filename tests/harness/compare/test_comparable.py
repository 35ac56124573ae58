"""Whether two runs were scored by the same rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.harness.compare.compare import (
    compare,
    other_rules,
    read_outcomes,
    rules_of,
)
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from tests.harness.commands.calling import call
from tests.support.runs import SHELF, bird_task, make_run, write_script


def test_scores_by_other_rules_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = {"default": {"answer": "7|3900\n9|3700"}}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = make_run(tmp_path / "one", ["a", "b", "c"], script=script)
    changed = [bird_task("a"), replace(bird_task("b"), reference="7|3900"), bird_task("c")]
    rubric = {**changed[2].options["rubric"], "ordered": True}
    changed[2] = replace(changed[2], options={"rubric": rubric})
    settings = Settings(agent=write_script(tmp_path / "two", script), contracts=(SHELF,), accept="exact")
    two = start_run(tmp_path / "two" / "run", settings, changed)
    run_attempts(two.path, display=SilentDisplay())
    result = compare(read_outcomes(one.path), read_outcomes(two.path))
    assert [pair.task_id for pair in result.pairs] == ["a"]
    assert dict(result.left_out) == {
        "b": "is scored by another reference in the second run",
        "c": "is scored by other options in the second run",
    }
    code, out = call(capsys, "compare", one.path, two.path, "--fail-on", "left_out>0")
    assert code == 1
    assert "the runs differ in what they stand on: tasks, accept\n" in out
    code, out = call(capsys, "compare", one.path, two.path, "--json")
    assert (code, json.loads(out)["differs"]) == (0, ["tasks", "accept"])
    with pytest.raises(
        UsageError, match=r"by other options in the second run; `stillweb score A -o NEW` scores the first"
    ):
        compare([o for o in read_outcomes(one.path) if o.task_id == "c"], read_outcomes(two.path)[-1:])
    assert "stand on" not in call(capsys, "compare", one.path, one.path)[1]


def test_tasks_that_are_asked_otherwise_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under one id the second run may hold a question that gives its answer away."""
    runs = []
    for name, question in (("one", "?"), ("two", "? It is 7."), ("three", "?")):
        (tmp_path / name).mkdir()
        tasks = [Task("a", question, "7"), Task("b", question, "7"), Task("c", "?", "7")]
        settings = Settings(agent=write_script(tmp_path / name, {"default": {"answer": "7"}}), contracts=())
        runs.append(start_run(tmp_path / name / "run", settings, tasks))
        run_attempts(runs[-1].path, display=SilentDisplay())
    one, two, three = runs
    files = RunFiles(three.path)
    made, stands_on = files.manifest()
    files.write_manifest(made, {**stands_on, "code": "of another version"})
    page = tmp_path / "page.html"
    told = "B asks 2 tasks in other words or from another start URL (the first: a)"
    assert told in call(capsys, "compare", one.path, two.path, "--html", page)[1]
    assert told in page.read_text()
    assert told in json.loads(call(capsys, "compare", one.path, two.path, "--json")[1])["parts"]
    out = call(capsys, "compare", one.path, three.path)[1]
    assert "the runs differ in what they stand on: code\n" in out
    assert "in other words" not in out
    assert "B has no certificate, so that nothing shows an edited trace\n" in out
    write_certificate(one.path)
    assert "certificate" not in call(capsys, "compare", one.path, one.path)[1]


def test_folded_case_matters_to_tables_only(tmp_path: Path) -> None:
    header = {"scoring": {"mode": "faithful", "fold_case": False, "models": {}, "embedder": None}}
    folded = {"scoring": {**header["scoring"], "fold_case": True}}
    table, exact = bird_task("a"), replace(bird_task("a"), scorer="exact")
    assert other_rules(rules_of(table, header), rules_of(table, folded)) == ["fold_case"]
    assert other_rules(rules_of(exact, header), rules_of(exact, folded)) == []
    assert other_rules(rules_of(exact, header), rules_of(table, header)) == ["fold_case", "scorer"]
    assert other_rules((), rules_of(table, header)) == []
