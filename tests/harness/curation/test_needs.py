"""What a run asked for, as its trace says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillweb.harness.curation.needs import tasks_as_asked
from stillweb.harness.trace import check_event, read_trace, replace_events
from tests.support.runs import make_run


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "event": "tool_call",
        "id": "c1",
        "tool": tool,
        "contract": None,
        "arguments": arguments,
        "verdict": None,
        "captures": [],
        "output": {"digest": "", "text": ""},
        "error": False,
    }


def test_a_run_asked_for_what_its_tools_made_of_it(tmp_path: Path) -> None:
    """A search has its operators, and a browser completes an address."""
    made = make_run(tmp_path, ["right"])
    trace = read_trace(made.trace_path("right", 1))
    calls = [
        call("google_search", q="kites", site="b.test"),
        call("google_search", q="kites"),
        call("google_search", q="kites", gl="us", hl="en"),
        call("google_search", site="b.test", q="kites"),
        call("browser_navigate", url="c.test/page"),
        call("browser_navigate", url="about:blank"),
        call("fetch", url="HTTPS://d.test/"),
        call("fetch", url="e.test"),
    ]
    events = [{**event, "n": n} for n, event in enumerate([*calls, *trace.events[-2:]], 1)]
    assert not any(map(check_event, events))
    replace_events(trace.path, [trace.header, *events])
    (asked,) = tasks_as_asked(trace.path)
    assert asked.meta["urls"] == ["https://c.test/page", "HTTPS://d.test/"]
    assert asked.meta["searches"] == [{"q": "kites", "site": "b.test"}, {"q": "kites"}]
