"""What of a run a difference between snapshots touches: said of the run's own snapshot only, texts and search included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.curation.affected import affected_by_run, affected_tasks
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace, replace_events
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.diff import CaptureChange, Diff, TextChange
from tests.support.runs import make_run

LIST = "https://shelf.example/list?year=2012&page=1"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = make_run(tmp_path, ["right"])
    settings, stands_on = made.manifest()
    made.write_manifest(settings, {**stands_on, "snapshot": "one"})
    return made


def calls(files: RunFiles, **members: Any) -> None:
    """Gives the run's tool calls these members."""
    trace = read_trace(files.trace_path("right", 1))
    events = [{**e, **members} if e["event"] == "tool_call" else e for e in trace.events]
    replace_events(trace.path, [trace.header, *events])


def reasons(files: RunFiles, found: Diff) -> list[str]:
    return [reason for one in affected_by_run(files.path, found) for reason in one.reasons]


def test_a_run_on_another_snapshot_is_not_called_untouched(files: RunFiles) -> None:
    assert reasons(files, Diff("one", "two")) == []
    with pytest.raises(UsageError, match="this run was made on the snapshot one, not on three"):
        affected_by_run(files.path, Diff("three", "one"))


@pytest.mark.parametrize(
    "url",
    [
        "https://shelf.example/list?year=2012&page=1",
        "https://shelf.example/list?page=1&year=2012#top",
        "HTTPS://Shelf.example:443/list?year=2012&page=1",
    ],
)
def test_a_page_is_touched_however_a_task_writes_its_url(url: str) -> None:
    found = Diff("one", "two", captures=[CaptureChange("changed", "GET", LIST, "", (), ())])
    (touched,) = affected_tasks([Task("t", "?", start_url=url)], found, [])
    assert touched.reasons == (f"changed: GET {LIST}",)
    assert affected_tasks([Task("t", "?", start_url="https://shelf.example/list")], found, []) == []


def test_a_text_that_an_extractor_changed_touches_what_was_fetched(files: RunFiles) -> None:
    calls(files, verdict="exact", address=LIST)
    found = Diff("one", "two", texts=[TextChange("changed", LIST, "extractor")])
    assert reasons(files, found) == [f"text changed: {LIST}"]
    assert (
        reasons(files, Diff("one", "two", texts=[TextChange("changed", "https://b.test/", "source")])) == []
    )


def test_a_search_over_the_texts_is_touched_by_any_of_them(files: RunFiles) -> None:
    calls(files, verdict="synthetic", address=None)
    found = Diff("one", "two", texts=[TextChange("added", "https://b.test/")])
    assert reasons(files, found) == ["a search over the frozen texts, of which some changed"]
    assert reasons(files, Diff("one", "two")) == []
