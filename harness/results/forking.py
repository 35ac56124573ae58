"""Forks: a new run that repeats one attempt of another up to a step, and goes on from there with another model."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import look_in, session_of
from stillweb.harness.agents import identity_of
from stillweb.harness.models.tape import Tape
from stillweb.harness.results.certificate import make_certificate
from stillweb.harness.runs.resources import agent_of, read_rubrics
from stillweb.harness.runs.run_files import (
    RunFiles,
    Settings,
    must_be_same,
    scoring_variables,
    snapshots_to_repeat,
)
from stillweb.harness.runs.runner import start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots import Snapshot
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.words import pluralize, whole_number


def fork_run(path: Path, attempt: str, out: Path, *, step: int, model: str) -> RunFiles:
    """Make the run at `out`, in which `model` makes the model calls of an attempt from `step` (1-based) on.

    The calls before are copied from the tape of the run at `path`; `run_attempts` makes the rest. The setting
    `fork`, and so the certificate, names what it was forked from. Endpoints are those that the environment
    names now. Raise UsageError if the attempt can't be repeated up to there.
    """
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    settings = files.with_secrets(settings)
    tasks = files.tasks()
    task, number = _attempt(path, tasks, attempt)
    trace_path = files.trace_path(task.id, number)
    if not trace_path.exists():
        raise UsageError(f"{path}: attempt {attempt} is not finished. Run it to its end first")
    look_in(settings.directory)
    snapshots = snapshots_to_repeat(path, settings.snapshots, ())
    agent = agent_of(settings)
    if getattr(agent, "model_options", None) is None:
        raise UsageError(
            f"{path}: its agent chooses its model itself. Fork a run of an agent that Stillweb asks for"
        )
    foundations: dict[str, Any] = {"agent": identity_of(agent), "snapshot": None}
    if snapshots:
        with Snapshot.open(*snapshots, at=settings.at) as snapshot:
            foundations["snapshot"] = snapshot.id
    for name, value in foundations.items():
        must_be_same(path, name, stands_on.get(name), value, "so it can't be repeated")
    calls = sum(event["purpose"] == "agent" for event in read_trace(trace_path).of("model"))
    if not 1 <= step <= calls:
        raise UsageError(
            f"{path}: attempt {attempt} made {pluralize(calls, 'model call')}. Give a --step of 1 to {calls}"
        )
    places = {n: v for n, v in scoring_variables(os.environ).items() if Settings.PLACE_VARIABLES.fullmatch(n)}
    forked: dict[str, Any] = {
        "certificate": make_certificate(path)["hash"],
        "task": task.id,
        "attempt": number,
        "step": step,
        "model": model,
    }
    made = start_run(
        out,
        replace(
            settings,
            snapshots=snapshots,
            epochs=1,
            tape="auto",
            tape_path=None,
            uploads={},
            env={**settings.env, **places},
            fork=forked,
        ),
        tasks,
        rubrics=read_rubrics(files),
        only=[task.id],
        refused=stands_on.get("refused", 0),
        uploads=files.uploads if settings.uploads else None,
    )
    tape = made.tape(made.manifest()[0])
    if step > 1 and not tape.exists():
        partial = tape.with_name(".tape")  # renamed once whole, so that a killed fork has no part of it
        shutil.rmtree(partial, ignore_errors=True)
        with Tape(files.tape(settings), "replay") as before:
            before.copy_calls(
                session_of(f"{task.id}/{number}"), step - 1, partial, session_of(f"{task.id}/1")
            )
        partial.rename(tape)
    return made


def _attempt(path: Path, tasks: list[Task], name: str) -> tuple[Task, int]:
    """Return the task and number of an attempt, written as TASK.NUMBER or TASK/NUMBER; TASK alone is its first."""
    for task in tasks:
        rest = name.removeprefix(task.id)
        if name == task.id:
            return task, 1
        if rest != name and rest[0] in "./" and (number := whole_number(rest[1:])) is not None:
            return task, number
    raise UsageError(f"{path}: has no attempt {name!r}. `stillweb score {path}` lists them")
