"""A comparison tells of a task that got worse, even where a log is all that is left of a run."""

from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from tests.harness.commands.calling import call
from tests.support.runs import SHELF, write_script

FETCH = {"call": "fetch", "with": {"url": "https://shelf.example/list?year=2012&page=1"}}
OTHER = {"call": "fetch", "with": {"url": "https://shelf.example/list?year=2013"}}


def make_run(folder: Path, *scripts: dict[str, Any]) -> Path:
    """A run of one task; each script is an attempt."""
    folder.mkdir()
    when = [
        {**step, "when": f"{{{{ attempt == {n} }}}}"} for n, s in enumerate(scripts, 1) for step in s["steps"]
    ]
    answer = "".join(f"{{% if attempt == {n} %}}{s['answer']}{{% endif %}}" for n, s in enumerate(scripts, 1))
    script = {"agent": "script", "default": {"steps": when, "answer": answer}}
    settings = Settings(agent=write_script(folder, script), contracts=(SHELF,), epochs=len(scripts))
    start_run(folder / "run", settings, [Task("bird", "Which bird?", "finch")])
    run_attempts(folder / "run", display=SilentDisplay())
    return folder / "run"


RIGHT = {"steps": [FETCH], "answer": "finch"}


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        ({"steps": [FETCH], "answer": "gull"}, "'finch' -> 'gull'; the same calls, answered alike"),
        (
            {"steps": [OTHER], "answer": "gull"},
            """'finch' -> none (script of 'bird', step 2: fetch failed: """,
        ),
        (
            {"steps": [{**OTHER, "may_fail": True}], "answer": "gull"},
            """'finch' -> 'gull'; call 1: fetch {"url":"https://shelf.example/list?year=2012&page=1"} -> """
            """fetch {"url":"https://shelf.example/list?year=2013"} (miss)""",
        ),
        (
            {"steps": [], "answer": "gull"},
            """call 1: fetch {"url":"https://shelf.example/list?year=2012&page=1"} -> none""",
        ),
    ],
)
def test_what_was_answered_and_asked_otherwise_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], worse: dict[str, Any], said: str
) -> None:
    one, two = make_run(tmp_path / "1", worse, RIGHT, RIGHT), make_run(tmp_path / "2", RIGHT, worse, worse)
    lines = call(capsys, "compare", one, two)[1].splitlines()
    assert said in next(line for line in lines if line.startswith("bird: answer"))
