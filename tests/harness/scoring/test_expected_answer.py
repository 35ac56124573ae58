"""What a wrong text answer should have been, whether that was seen, and how report and review say it."""

from __future__ import annotations

from typing import Any

import pytest

from stillweb.harness.review.reviews import COMPOSITION, hints_of
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring.expected_answer import wanted
from stillweb.harness.task import Task
from stillweb.harness.trace import Trace, read_trace
from stillweb.harness.view.export import write_report
from tests.support.pages import chromium
from tests.support.runs import SHELF, write_script

PAGE = {"call": "fetch", "with": {"url": "https://shelf.example/list?year=2012&page=1"}}
TASKS = {  # id: reference, answer; the page has 7|3900 and 9|3700
    "right": (["3,900", "about 3900"], "3900"),
    "misread": (["3,900 g", 3900], "3700"),
    "lost": (3900, "42"),
    "unseen": ("1778", "42"),
    "long": ("a text that no page has word for word, " * 4, "42"),
    "object": ({"mass": 3900}, "42"),
    "asked": ("bird 7", "bird 9"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    folder = tmp_path_factory.mktemp("texts")
    script: dict[str, Any] = {"agent": "script", "tasks": {}, "default": {"answer": "42", "steps": [PAGE]}}
    for name, (_, answer) in TASKS.items():
        script["tasks"][name] = {"steps": [PAGE], "answer": answer}
    tasks = [
        Task(name, "How heavy is bird 7?", reference, "exact", options={"numeric": True})
        for name, (reference, _) in TASKS.items()
    ]
    made = start_run(folder / "run", Settings(agent=write_script(folder, script), contracts=(SHELF,)), tasks)
    run_attempts(made.path, display=SilentDisplay())
    return made


def trace_of(files: RunFiles, name: str) -> Trace:
    return read_trace(files.trace_path(name, 1))


def test_where_the_right_answer_was_seen(files: RunFiles) -> None:
    found = {name: wanted(trace_of(files, name)) for name in TASKS}
    assert [(one.text, one.seen) for one in found["right"]] == [("3,900", None), ("about 3900", None)]
    assert [(one.text, bool(one.seen)) for one in found["misread"]] == [("3,900 g", False), ("3900", True)]
    assert [place["event"] for one in found["lost"] for place in one.seen or ()] == [1]
    assert [one.seen for one in found["unseen"]] == [[]]
    assert [one.seen for one in found["long"]] == [None]
    assert found["object"] == []
    assert [(one.seen, one.asked) for one in found["asked"]] == [(None, True)]
    assert not any(one.asked for name in TASKS if name != "asked" for one in found[name])


def test_hints_tell_what_was_misread_lost_and_never_seen(files: RunFiles) -> None:
    found = {name: [(h.suggests, h.upstream) for h in hints_of(trace_of(files, name))] for name in TASKS}
    assert found["right"] == found["long"] == found["asked"] == []
    assert found["misread"] == [("in-page misreading", True)]
    assert found["lost"] == [(COMPOSITION, False)]
    assert found["unseen"] == [("retrieval dependency not closed", False)]


@pytest.mark.slow
def test_the_report_shows_the_reference(files: RunFiles) -> None:
    """Of an answer that is no table they said that it was wrong, and not what was right."""
    with chromium() as page:
        page.goto(write_report(files.path).as_uri())
        names = ("misread", "unseen", "lost", "asked")
        said = {name: page.get_by_label(f"{name}.1", exact=True).inner_text() for name in names}
    assert "Reference, any of\n3,900 g\nwhich it never saw\n3900\nseen in step 1, but lost" in plain(
        said["misread"]
    )
    assert "Reference\n1778\nwhich it never saw" in plain(said["unseen"])
    assert "Reference\n3900\nseen in step 1, but lost" in plain(said["lost"])
    assert "Reference\nbird 7\nwhich stood in its prompt" in plain(said["asked"])  # as pages do in one


def plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
