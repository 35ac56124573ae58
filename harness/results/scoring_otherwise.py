"""A run scored by other rules: the same attempts with other references, scorers, options or side-cars, as a run of its own.

What an agent was told stays: an attempt at another question is no answer to this one. No agent is asked, and a judge only
where that is wanted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from harness.inputs.import_path import look_in
from harness.rubric import compile_rubrics
from harness.runs.hashes import as_json, rubrics_hash, scoring_hashes
from harness.runs.ready import check_judges, unnamed_judge
from harness.runs.run_files import RunFiles, Settings
from harness.runs.workshop import judge_endpoints, read_rubrics
from harness.scoring import judging
from harness.scoring.embeddings import embedder_for
from harness.scoring.judging import AskedJudge, Evaluator
from harness.task import Task, TaskSet
from harness.trace import Trace, hashed_part, replace_events
from snapshots.archives.appending import write_whole
from snapshots.errors import UsageError


def score_otherwise(
    run: Path,
    out: Path,
    *,
    tasks: Sequence[Task] | None = None,
    rubrics: Mapping[str, Any] | None = None,
    mode: Literal["faithful", "fixed"] | None = None,
    fold_case: bool | None = None,
    judges: Mapping[str, str] | None = None,
    embedder: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Writes the run at `out`, scored by what is given and else as `run` was; the attempts whose score is another.

    `judges` lets judges be asked what the traces do not hold: the variables that name them, over those of the run. What
    they say is added to the tape of `out`, and one that fails is told in the attempt's score.

    UsageError: `out` is not empty, an attempt is unfinished, a task lacks or asks another question, or the side-cars of
    `run` were not compiled from its tasks and no others are given. StillwebError where a scorer wants to know what the
    traces do not hold (a judge that was never asked and is not asked now, an expression in the final page). `out` is then as before.
    """
    files = RunFiles(run)
    settings, stands_on = files.manifest()
    before = files.tasks()
    look_in(settings.directory)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not empty; name another directory with -o")
    chosen = before if tasks is None else _matching(files, before, tasks)
    side_cars = _side_cars(files, before, chosen, rubrics, changed=tasks is not None)
    tape = files.tape(settings)
    settings = replace(
        settings,
        mode=mode or settings.mode,
        fold_case=settings.fold_case if fold_case is None else fold_case,
        tape_path=str(tape.absolute()) if settings.tape_path and judges is None else None,
        env={**settings.env, **(judges or {})},
        tape="auto" if judges is not None and settings.tape == "replay" else settings.tape,
    )
    _check_judges(chosen, settings, tape, asked=judges is not None)
    evaluator = Evaluator(
        side_cars,
        None,
        embedder or embedder_for({task.scorer for task in chosen}, settings.env),
        settings.mode,
        settings.fold_case,
        settings.env,
    )
    hashes = {
        **stands_on,
        "tasks": TaskSet("run", tuple(chosen)).digest,
        "rubrics": rubrics_hash(side_cars),
        **scoring_hashes(chosen),
    }

    def told(done: int) -> None:
        if progress is not None:
            progress(done, len(chosen) * settings.epochs)

    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of one that was killed
    try:
        new = RunFiles(part)
        _copy(files, new, tape, to_be_added_to=judges is not None)
        with _asking(new, settings, chosen if judges is not None else ()) as (judge, anew):
            evaluator = replace(evaluator, judge=judge)
            by_id = {task.id: task for task in chosen}
            different = _write_attempts(files, new, by_id, evaluator, anew, told)
        _write_rest(new, settings, chosen, side_cars, hashes)
        os.replace(part, out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return different


def _matching(files: RunFiles, before: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """The tasks of the run as they are now; others of the set are left out, as the run made no attempt at them."""
    now = {task.id: task for task in tasks}
    for task in before:
        if task.id not in now:
            raise UsageError(f"{files.path}: its task {task.id!r} is not among those given")
        for name in ("question", "start_url"):
            if getattr(task, name) != getattr(now[task.id], name):
                raise UsageError(
                    f"{files.path}: task {task.id!r} has another {name} now, which no attempt was made at; run it anew"
                )
    return [now[task.id] for task in before]


def _side_cars(
    files: RunFiles,
    before: Sequence[Task],
    chosen: Sequence[Task],
    given: Mapping[str, Any] | None,
    *,
    changed: bool,
) -> dict[str, Any]:
    """The side-cars to score by. Those of the run are kept while its tasks are, and compiled again where they were."""
    if given is not None:
        return {name: as_json(one) for name, one in given.items()}
    kept = read_rubrics(files)
    if not changed:
        return kept
    if kept != {name: as_json(one) for name, one in compile_rubrics(before).items()}:
        raise UsageError(
            f"{files.path}: has side-cars that were not compiled from its tasks; say with --rubrics which to take "
            f"({files.path / 'rubrics.json'} has those of the run)"
        )
    return {name: as_json(one) for name, one in compile_rubrics(chosen).items()}


def _check_judges(tasks: Sequence[Task], settings: Settings, tape: Path, *, asked: bool) -> None:
    """Before anyone is asked or anything written."""
    if asked:
        if tape.is_file():
            raise UsageError(
                f"{tape}: the run's tape is sealed, so that no judge's answer can be added to it"
            )
        check_judges(tasks, settings, taped=False)
        return
    if (task := unnamed_judge(tasks, settings)) is not None:
        raise UsageError(
            f"task {task.id}: scorer {task.scorer!r} needs a judge, and the run named none; set GRADER_MODEL "
            "(or options.model) and say --ask-judge"
        )


@contextmanager
def _asking(
    new: RunFiles, settings: Settings, tasks: Sequence[Task]
) -> Iterator[tuple[AskedJudge | None, Callable[[str], None]]]:
    """The judge of these tasks, None where they have none, and what begins a session of it anew."""
    endpoints = judge_endpoints(settings.env, tasks)
    if not endpoints:
        yield None, lambda session: None
        return
    from harness.models.client import Judge
    from harness.models.tape import Tape

    with Tape.open(new.tape(settings), settings.tape) as tape:
        judge = Judge(tape, endpoints, prices=settings.prices)
        try:
            yield judge, lambda session: tape.ask_again(f"{session}/judge", everything=True)
        finally:
            judge.close()


def _write_attempts(
    files: RunFiles,
    new: RunFiles,
    tasks: Mapping[str, Task],
    evaluator: Evaluator,
    anew: Callable[[str], None],
    told: Callable[[int], None],
) -> list[str]:
    new.traces.mkdir()
    different: list[str] = []
    for done, (task, number, trace) in enumerate(files.attempts(), start=1):
        if trace is None:
            raise UsageError(f"{files.path}: {task.id}.{number} is unfinished; run it to its end first")
        now = tasks[task.id]
        rubric = evaluator.rubric(now)
        header = {
            **trace.header,
            "task": now.to_json(),
            "rubric": None if rubric is None else as_json(rubric),
            "scoring": evaluator.settings(),
        }
        lines = judging.score_otherwise(Trace(trace.path, header, trace.events), evaluator, anew)
        told(done)
        replace_events(new.trace_path(task.id, number), lines)
        old, fresh = (
            next(e for e in reversed(events) if e["event"] == "score") for events in (trace.events, lines)
        )
        if any(hashed_part(old)[name] != hashed_part(fresh)[name] for name in ("metrics", "status")):
            different.append(f"{task.id}.{number}")
    return different


def _copy(files: RunFiles, new: RunFiles, tape: Path, *, to_be_added_to: bool) -> None:
    """What certify repeats from, and what is counted. A tape that lies elsewhere stays there, unless it is added to."""
    new.path.mkdir()
    kept = files.path / "tape"
    for there, name in ((tape if to_be_added_to else kept, "tape"), (files.path / "failed", "failed")):
        if there.is_dir():
            shutil.copytree(there, new.path / name)


def _write_rest(
    new: RunFiles,
    settings: Settings,
    tasks: Sequence[Task],
    side_cars: Mapping[str, Any],
    hashes: Mapping[str, Any],
) -> None:
    if side_cars:
        text = json.dumps(side_cars, ensure_ascii=False, indent=1) + "\n"
        write_whole(new.path / "rubrics.json", [text.encode("utf-8", "backslashreplace")])
    new.create(settings, tasks, hashes)
