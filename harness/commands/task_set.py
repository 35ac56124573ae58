"""Task sets for commands: read with their problems printed, and run without a snapshot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.harness.commands.show import show_summary
from stillweb.harness.console import say

if TYPE_CHECKING:
    from stillweb.harness.runs.run_files import Settings
    from stillweb.harness.task import TaskSet


def read_tasks(source: str, split: str | None = None) -> TaskSet:
    """Return a task set; print which records could not be read, and which fields are not used.

    A command that leaves out a record must end with exit code 1: a misspelt field must not look like a success.
    """
    from stillweb.harness.datasets import load_tasks

    tasks = load_tasks(source, split=split)
    for problem in tasks.problems:
        say(f"left out: {problem}")
    for notice in tasks.notices:
        say(f"not read: {notice}")
    return tasks


def settings_without_snapshot(agent: str, source: str, **members: Any) -> Settings:
    """Return the settings of a run that has no snapshot, and so no tools."""
    from stillweb.harness.runs.run_files import Settings, scoring_variables

    return Settings(
        agent=agent,
        contracts=(),
        directory=os.getcwd(),
        source=os.path.abspath(source) if os.path.exists(source) else None,
        env=scoring_variables(os.environ),
        **members,
    )


def run_set(
    out: Path,
    settings: Settings,
    tasks: TaskSet,
    *,
    rubrics: Path | None = None,
    limit: int | None = None,
    parallel: int = 2,
    retry_failed: bool = False,
    as_json: bool = False,
) -> str:
    """Run a set, write the certificate and print the scores; return what failed or could not be read, or ""."""
    from stillweb.harness.agents import load_agent
    from stillweb.harness.agents.predictions import PredictionsAgent
    from stillweb.harness.results.certificate import check_traces, write_certificate
    from stillweb.harness.results.left_out import failed_attempts, unread_records
    from stillweb.harness.rubric import compile_rubrics, load_rubrics
    from stillweb.harness.runs.cluster import make_engine
    from stillweb.harness.runs.display import make_display
    from stillweb.harness.runs.runner import run_attempts, start_run

    agent = load_agent(settings.agent)
    if isinstance(agent, PredictionsAgent) and (missing := agent.check(task.id for task in tasks)):
        say(missing)
    tables = [task for task in tasks if task.scorer == "table"]
    files = start_run(
        out,
        settings,
        tasks,
        rubrics=load_rubrics(str(rubrics)) if rubrics else compile_rubrics(tables),
        limit=limit,
        refused=len(tasks.problems),
    )
    engine = make_engine("local", out, parallel)
    made = run_attempts(out, engine=engine, display=make_display(), retry_failed=retry_failed)
    if not made:
        say(f"{out}: every attempt was made before, none now")
    certificate = write_certificate(out) if made else check_traces(out)
    summary = show_summary(out, certificate, as_json)
    return failed_attempts(summary) or unread_records(files)
