"""Small runs over the shelf tools, for the tests of everything that reads runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task

SHELF = "tests.support.shelf_tools:Shelf"
RUBRIC = {"columns": ["id", "mass"], "row_key": ["id"], "fields": {"mass": {"type": "integer"}}}
SCRIPT: dict[str, Any] = {
    "agent": "script",
    "default": {
        "steps": [
            {"call": "fetch", "with": {"url": "https://shelf.example/list?year=2012&page=1"}, "as": "page"},
            {"set": {"rows": "{{ page | records('id', 'mass') }}"}},
        ],
        "answer": "{{ rows | pick('id', 'mass') | piped }}",
    },
    "tasks": {
        "wrong": {
            "steps": [
                {
                    "call": "fetch",
                    "with": {"url": "https://shelf.example/list?year=2012&page=1"},
                    "as": "page",
                },
                {"call": "fetch", "with": {"url": "https://shelf.example/list?year=2013"}, "may_fail": True},
            ],
            "answer": "7|3900\n9|3800",
        },
        "silent": {"steps": [{"call": "fetch", "with": {"url": "https://shelf.example/"}}]},
        "babble": {"steps": [{"set": {"a": 1}}], "answer": "I could not find any of these birds, sorry."},
        "broken": {"steps": [{"call": "fetch", "with": {"url": "https://nowhere.example/"}}], "answer": "7"},
    },
}


def bird_task(name: str, **members: Any) -> Task:
    """Return a task on heavy birds, answered by two rows of id and mass."""
    return Task(
        name,
        "Which birds weighed more than 3,660 g in 2012? id|mass, heaviest first.",
        "7|3900\n9|3700",
        "table",
        start_url="https://shelf.example/",
        options={"rubric": RUBRIC},
        **members,
    )


def write_script(folder: Path, script: dict[str, Any] | None = None) -> str:
    """A script's file; returns the agent's specification."""
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(script or SCRIPT, allow_unicode=True), encoding="utf-8")
    return str(path)


def make_run(
    folder: Path, names: list[str], *, run: bool = True, script: dict[str, Any] | None = None, **settings: Any
) -> RunFiles:
    """A run of the script on tasks with these ids."""
    ready = Settings(agent=write_script(folder, script), contracts=(SHELF,), **settings)
    files = start_run(folder / "run", ready, [bird_task(name) for name in names])
    if run:
        run_attempts(files.path, display=SilentDisplay())
    return files
