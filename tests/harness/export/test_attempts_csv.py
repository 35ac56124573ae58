"""A run as CSV: every attempt owed is a row, and the figures are those of the summary."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.harness.export.attempts_csv import export_csv
from stillweb.harness.results.summary import summarise
from stillweb.harness.review.reviews import Review, add_review
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from tests.harness.commands.calling import call
from tests.support.command_line import stillweb
from tests.support.runs import SHELF, bird_task, make_run, write_script

NAMES = ["right", "wrong", "silent", "babble", "broken"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return make_run(tmp_path_factory.mktemp("run"), NAMES, epochs=2)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_attempts_and_their_figures_those_of_the_summary(files: RunFiles, tmp_path: Path) -> None:
    rows = rows_of(export_csv(files.path, tmp_path / "run.csv"))
    summary = summarise(files.path)
    assert [(row["task"], row["attempt"]) for row in rows] == [(name, n) for name in NAMES for n in "12"]
    for status, count in summary.statuses.items():
        assert sum(row["status"] == status for row in rows) == count
    assert sum(int(row["calls"]) for row in rows) == summary.tool_calls
    assert sum(int(row["misses"]) for row in rows) == summary.misses
    for name, mean in summary.means.items():
        values = [float(row[f"score.{name}"]) for row in rows if row[f"score.{name}"]]
        assert (len(values), sum(values) / len(rows)) == (mean.scored, pytest.approx(mean.all))
    wrong = next(row for row in rows if row["task"] == "wrong")
    assert (wrong["answer"], wrong["reference"]) == ("7|3900\n9|3800", "7|3900\n9|3700")
    assert wrong["trace"] == read_trace(files.trace_path("wrong", 1)).hash
    babble = next(row for row in rows if row["task"] == "babble")
    assert (babble["status"], babble["score.em"], bool(babble["problem"])) == ("unparsable", "", True)


def test_what_is_unfinished_reviewed_or_no_text_is_there(tmp_path: Path) -> None:
    settings = Settings(
        agent=write_script(tmp_path, {"agent": "script", "default": {"answer": "4, or five"}}),
        contracts=(SHELF,),
    )
    tasks = [
        Task("a", "How many?", [4, "five"]),
        Task("b", "How many?", "4", base="many"),
        replace(bird_task("c")),
    ]
    made = start_run(tmp_path / "run", settings, tasks)
    run_attempts(made.path, display=SilentDisplay())
    add_review(made.trace_path("a", 1), Review("Åsa", "drift", 0, "x", "x", "in-page misreading", "x"))
    made.trace_path("b", 1).unlink()
    a, b, _ = rows_of(export_csv(made.path, tmp_path / "run.csv"))
    assert (a["reference"], a["answer"], a["review"]) == ('[4, "five"]', "4, or five", '{"Åsa": "drift"}')
    assert (b["status"], b["base"], b["score.exact"], b["trace"]) == ("unfinished", "many", "", "")


def test_the_command_writes_it_beside_the_run(files: RunFiles, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "report", files.path, "--format", "csv")
    assert (code, out.strip()) == (0, str(files.path / "report.csv"))
    assert len(rows_of(files.path / "report.csv")) == 10


def test_written_to_a_pipe_it_is_nothing_but_the_report(files: RunFiles) -> None:
    """The line that names a report's file stood behind the last row."""
    done = stillweb("report", files.path, "--format", "csv", "-o", "/dev/stdout")
    assert (done.code, done.out) == (0, export_csv(files.path, files.path / "kept.csv").read_bytes().decode())
