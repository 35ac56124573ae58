"""Scorers that look at the page an attempt ended on, with the real browser tools on a snapshot."""

from datetime import UTC, datetime

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.support.runs import write_script

PAGE = b"<!DOCTYPE html><html><title>Birds</title><body><h1>Kestrel</h1><p>200 g</p></body></html>"
URL = "http://shelf.example/birds"


@pytest.mark.slow
def test_an_expression_is_evaluated_in_the_final_page_and_kept_in_the_trace(tmp_path):
    with Writer.open(tmp_path / "site") as writer:
        request = Request("GET", URL, (("Host", "shelf.example"),))
        headers = (("Content-Type", "text/html"), ("Content-Length", str(len(PAGE))))
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        writer.exchange(Exchange(request, 200, "OK", headers, PAGE, moment, begin=1, end=2))
    script = {"default": {"steps": [{"call": "browser_navigate", "with": {"url": URL}}], "answer": "done"}}
    settings = Settings(
        agent=write_script(tmp_path, script),
        snapshots=(str(tmp_path / "site"),),
        contracts=("playwright-mcp",),
    )
    tasks = [
        Task(
            "right",
            "Open it.",
            "Kestrel",
            "page",
            options={"expression": "document.querySelector('h1').textContent"},
        ),
        Task("wrong", "Open it.", None, "page", options={"expression": "document.title === 'Fish'"}),
    ]
    files = start_run(tmp_path / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    traces = {name: read_trace(files.trace_path(name, 1)) for name in ("right", "wrong")}
    assert traces["right"].last("evidence")["value"] == "Kestrel"
    assert {name: trace.last("score")["metrics"]["page"] for name, trace in traces.items()} == {
        "right": 1.0,
        "wrong": 0.0,
    }
    assert traces["right"].of("state")[0]["url"] == URL
    assert score_run(files.path) == []
    assert certify(files.path, times=1).differences == ()
