"""Whatever the schema lets stand in a trace, everything that reads traces can read: no call of a model ends a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.compare.compare import read_outcomes
from stillweb.harness.curation.affected import affected_by_run
from stillweb.harness.curation.needs import needs_of_run, tasks_as_asked
from stillweb.harness.export.inspect_log import export_inspect
from stillweb.harness.export.openinference import export_openinference
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import check_event, read_trace, replace_events
from stillweb.harness.view.export import write_report
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.operations.diff import Diff
from tests.support.runs import make_run

# As the agent `openai` writes it where the arguments that a model wrote are no JSON.
UNREADABLE: dict[str, Any] = {
    "event": "tool_call",
    "n": 1,
    "id": "c1",
    "tool": "google_search",
    "contract": None,
    "arguments": "{not json",
    "verdict": None,
    "captures": [],
    "output": {"digest": "", "text": "Error: not JSON"},
    "error": True,
}
# As an agent of one's own may: what an endpoint says of cached tokens is no must.
PLAIN: dict[str, Any] = {
    "event": "model",
    "n": 2,
    "purpose": "agent",
    "api": "other",
    "model": "m",
    "request": {"digest": "", "new": []},
    "reply": {"text": "x", "tool_calls": []},
    "usage": {"input": 2, "output": 3},
}
# As tools of one's own may, and a person who writes the event by hand.
OWN: list[dict[str, Any]] = [
    {**UNREADABLE, "arguments": {}, "nearest": ["https://a.test/", 5], "meta": {"missed": 3}},
    {"event": "evidence", "kind": "page"},
]
REVIEW: dict[str, Any] = {
    "event": "review",
    "reviewer": "ada",
    "class": "drift",
    "decisive_event": 1,
    "nearest_class": "self-rewriting",
    **dict.fromkeys(("cause", "evidence", "why_not"), "x"),
}


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = make_run(tmp_path, ["right"])
    trace = read_trace(made.trace_path("right", 1))
    events = [*trace.events[:-2], UNREADABLE, PLAIN, *OWN, *trace.events[-2:], REVIEW]
    numbered = [{**event, "n": n} for n, event in enumerate(events, 1)]
    assert not any(map(check_event, numbered))
    replace_events(trace.path, [trace.header, *numbered])
    return made


def test_every_reader_reads_a_call_without_what_it_may_lack(files: RunFiles, tmp_path: Path) -> None:
    snapshot = read_trace(files.trace_path("right", 1)).header["snapshot"]
    assert "google_search" in write_report(files.path).read_text()
    assert '"stringValue": "google_search"' in export_openinference(files.path, tmp_path / "o").read_text()
    assert '"total_tokens": 5' in export_inspect(files.path, tmp_path / "i").read_text()
    assert len(read_outcomes(files.path)) == 1
    assert score_run(files.path) == []
    assert needs_of_run(files.path, snapshot).captures
    assert "ada" in write_report(files.path).read_text()
    (asked,) = tasks_as_asked(files.path)
    assert asked.meta["searches"] == []
    assert affected_by_run(files.path, Diff(snapshot, "two")) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scoring": ...}, "member 'scoring' is missing"),
        ({"scoring": {}}, "scoring: member 'mode' is missing"),
        ({"task": {}}, "task: member 'id' is missing"),
        ({"aside": {"started": None}}, "aside.started: must be number, not NoneType"),
    ],
)
def test_a_header_without_what_scoring_needs_is_told_by_its_line(
    files: RunFiles, change: dict[str, Any], says: str
) -> None:
    trace = read_trace(files.trace_path("right", 1))
    header = {name: value for name, value in {**trace.header, **change}.items() if value is not ...}
    replace_events(trace.path, [header, *trace.events])
    with pytest.raises(DamagedInput, match=rf"right\.1\.jsonl:1: {says}"):
        read_outcomes(files.path)
