"""Runs: attempts in parallel, each with its own session and trace. No finished attempt is made twice.

start_run(path, settings, tasks, rubrics=…)     makes the directory, or continues an existing run
run_attempts(path, engine=…)                    makes every attempt that is not finished yet
run_one(workshop, job)                          one attempt
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from stillweb.harness._parsing import session_of
from stillweb.harness.agents import identity_of
from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.models.tape import gather, part_of
from stillweb.harness.runs.display import Display, PlainDisplay
from stillweb.harness.runs.engine import Done, Engine, Job, LocalEngine, Outcome, Work
from stillweb.harness.runs.hashes import as_json, code_hash, contracts_hash, rubrics_hash, scoring_hashes
from stillweb.harness.runs.playing import Played, copy_agent_part, play, score_attempt, time_of
from stillweb.harness.runs.preflight import check_ready
from stillweb.harness.runs.repeating import KnownEnds
from stillweb.harness.runs.resources import RunResources, agent_of
from stillweb.harness.runs.run_files import RunFiles, Settings, must_be_same, trace_name
from stillweb.harness.sandbox.running import remove_folder
from stillweb.harness.scoring import Score, find_scorer
from stillweb.harness.scoring.judging import failure, unreadable_judgement
from stillweb.harness.task import Task, TaskSet
from stillweb.harness.tools.workspace import copy_uploads, uploads_in
from stillweb.harness.trace import Trace, TraceWriter, counts_of, read_trace
from stillweb.proxy.browser import running
from stillweb.snapshots import Snapshot
from stillweb.snapshots._os.cluster import run_on_cluster
from stillweb.snapshots._os.signals import SIGNALS
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.extras import require
from stillweb.snapshots.words import did_you_mean

SCORING = ("evaluator", "scorers")  # members of run.json that identify the scoring code
_BY_SIGNAL = {128 + number for number in SIGNALS}  # exit codes of the command line after a signal


class NoTools:
    """Tool session of a run without tools."""

    def list(self) -> Sequence[Any]:
        return ()

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Raise UsageError: there is no tool to call."""
        raise UsageError(f"tool {name!r} was called, but the run has no tools; give it a snapshot")

    async def close(self) -> None:
        pass


def start_run(
    path: Path,
    settings: Settings,
    tasks: Sequence[Task],
    *,
    rubrics: Mapping[str, Any] | None = None,
    limit: int | None = None,
    only: Sequence[str] = (),
    refused: int = 0,
    uploads: Path | None = None,
) -> RunFiles:
    """Make a run's directory, or check that an existing one holds the same run.

    `uploads` is a folder of files that attempts may upload to pages; the run keeps copies.

    `limit` takes the first tasks, `only` those with these ids (UsageError names an unknown id). Scores of a
    run then say that it is a part of its set. `refused` is how many records of the set could not be read; it
    is reported with the scores of a run of the whole set.
    """
    chosen = choose(tasks, limit, only)
    if not chosen:
        raise UsageError("there is no task to run")
    files = RunFiles(path)
    settings = settings.checked()
    if uploads is not None:
        settings = replace(settings, uploads=uploads_in(uploads))
    files.forget_unbegun()
    fresh = not (path / "run.json").exists()
    files.claim()
    if fresh and uploads is not None:
        copy_uploads(uploads, files.uploads, settings.uploads)
    if fresh and rubrics:
        side_cars = {name: as_json(rubric) for name, rubric in rubrics.items()}
        text = json.dumps(side_cars, ensure_ascii=False, indent=1) + "\n"
        (path / "rubrics.json").write_text(text, encoding="utf-8", errors="backslashreplace")
    files.create(
        settings,
        chosen,
        {
            "tasks": TaskSet("run", tuple(chosen)).digest,
            "rubrics": rubrics_hash(rubrics or {}),
            **(
                {"part_of": len(tasks)}
                if len(chosen) < len(tasks)
                else {"refused": refused}
                if refused
                else {}
            ),
        },
    )
    if not fresh:
        with files.lock():  # another process that works on the run may read its settings again
            _move(files, settings)
    return files


def _move(files: RunFiles, settings: Settings) -> None:
    """Update the paths of agent, snapshots and tape. Raise UsageError if they are not those of the run.

    Checked even if every attempt is made: old scores must not pass for those of another agent.
    """
    _, stands_on = files.manifest()
    now: dict[str, Any] = {}
    if "agent" in stands_on:
        now["agent"] = identity_of(agent_of(settings))
    if stands_on.get("snapshot") is not None:
        with Snapshot.open(*settings.snapshots, at=settings.at) as snapshot:
            now["snapshot"] = snapshot.id
    _same(files, stands_on, now)
    for name in sorted({task.scorer for task in files.tasks() if ":" in task.scorer}):
        find_scorer(name)  # a scorer that is not found here leaves run.json as it was
    files.write_manifest(settings, stands_on)


def _same(files: RunFiles, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, value in now.items():
        if name in before and name not in ("code", *SCORING):
            must_be_same(files.path, name, before[name], value, "choose another directory")


def choose(tasks: Sequence[Task], limit: int | None, only: Sequence[str]) -> list[Task]:
    """Return the tasks that a run takes, in their order. Raise UsageError for a repeated id."""
    known = [task.id for task in tasks]
    if len(set(known)) != len(known):
        twice = next(name for i, name in enumerate(known) if name in known[:i])
        raise UsageError(f"two tasks have the id {twice!r}")
    for name in only:
        if name not in known:
            hint = (
                did_you_mean(name, known)
                if name
                else "; an empty one is between two commas, or after the last"
            )
            raise UsageError(f"--only: there is no task {name!r}{hint}")
    chosen = [task for task in tasks if not only or task.id in only]
    return chosen[:limit] if limit is not None else chosen


def remaining_attempts(files: RunFiles, *, retry_failed: bool = False) -> list[Job]:
    """Return the attempts still to make: those without a trace.

    `retry_failed` adds those that failed or whose judge failed.
    """
    settings, _ = files.manifest()
    jobs: list[Job] = []
    for number in range(1, settings.epochs + 1):
        for task in files.tasks():
            path = files.trace_path(task.id, number)
            if not path.exists() or (retry_failed and _to_retry(read_trace(path))):
                jobs.append(Job(task.id, number))
    return jobs


def _to_retry(trace: Trace) -> str:
    return failure(trace) or unreadable_judgement(trace)


def _only_judged(path: Path) -> bool:
    """Return True if only the judge failed, so that the agent's part can be kept.

    An attempt scored on its final page is made again, since the page is gone.
    """
    trace = read_trace(path)
    return not failure(trace) and not any(event["kind"] == "page" for event in trace.of("evidence"))


def run_attempts(
    path: Path,
    *,
    engine: Engine | None = None,
    display: Display | None = None,
    retry_failed: bool = False,
    order: Callable[[list[Job]], list[Job]] | None = None,
    unsolvable: Mapping[str, str] | None = None,
    known: KnownEnds | None = None,
) -> int:
    """Make the missing attempts and return how many were made.

    After KeyboardInterrupt all files are complete.

    `order` rearranges the jobs. `unsolvable` maps task ids to why the snapshot can't answer them; these
    attempts are counted without paying a model. `known`, for repetitions, holds the ends of attempts of the
    first run. Raise UsageError while another process works on the run, whose running attempts would be taken
    for interrupted ones.
    """
    files = RunFiles(path)
    with files.lock():
        files.set_aside_interrupted()
        jobs = remaining_attempts(files, retry_failed=retry_failed)
        # attempts made again, each with the trace to keep the agent's part from
        judged: dict[Job, Path | None] = {}
        for job in jobs:
            if files.trace_path(job.task_id, job.attempt).exists():
                files.set_aside_failed(job.task_id, job.attempt)
            # also finds one set aside by a process that was killed before it could make it again
            if there := files.last_failed(job.task_id, job.attempt):
                judged[job] = there if _only_judged(there) else None
        if jobs:
            (path / "certificate.json").unlink(missing_ok=True)  # it describes the old traces
        reasons = unsolvable or {}
        jobs = [
            replace(
                job,
                unsolvable=reasons.get(job.task_id),
                known=known,
                again=job in judged,
                judged=judged.get(job),
            )
            for job in jobs
        ]
        return _make(files, order(jobs) if order else jobs, engine, display or PlainDisplay())


def _make(files: RunFiles, jobs: list[Job], engine: Engine | None, shown: Display) -> int:
    files = RunFiles(files.path.absolute())  # an agent may change the working directory
    made = 0

    def done(outcome: Outcome) -> None:
        nonlocal made
        made += 1
        shown.finished(outcome)

    async def all_of_them() -> None:
        repeats = any(job.known for job in jobs)
        async with RunResources.open(files.path, repeats=repeats) as shop:
            note_foundations(shop)
            await (engine or LocalEngine()).run(jobs, partial(run_one, shop, display=shown), done)

    if jobs:
        settings, _ = files.manifest()
        wanted = {job.task_id for job in jobs}
        tape = files.tape(settings)
        gather(tape)  # left by an earlier run on several machines that was killed
        check_ready([task for task in files.tasks() if task.id in wanted], settings, tape)
    with shown, chdir("."):
        shown.begin(len(jobs))
        if jobs:
            try:
                running.run(all_of_them())
            except BaseExceptionGroup as group:
                raise _first(group) from None
            except SystemExit as end:
                if end.code in _BY_SIGNAL:
                    raise
                raise StillwebError(
                    f"{files.path}: an agent or a scorer ended the whole process (SystemExit: {end.code}); "
                    "the attempts under way are lost"
                ) from end
    return made


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def note_foundations(shop: RunResources) -> None:
    """Write what the run depends on into run.json.

    Raise UsageError if a resumed run depends on something else.

    The scoring hashes of earlier attempts stay in it: see stillweb.harness.results.certificate.
    """
    settings, before = shop.files.manifest()
    specs = shop.tools.session("stillweb-contracts").list() if shop.tools else ()
    now = {
        **before,
        "snapshot": shop.snapshot_id,
        "contracts": contracts_hash(specs),
        "agent": identity_of(shop.agent),
        **scoring_hashes(shop.tasks.values()),
        **{name: before[name] for name in SCORING if name in before},
        "code": code_hash(),
    }
    _same(shop.files, before, now)
    if now != before:
        shop.files.write_manifest(settings, now)


async def run_one(shop: RunResources, job: Job, *, display: Display | None = None) -> Outcome:
    """Make one attempt, score it and give its trace its final name."""
    task, known = shop.tasks[job.task_id], job.known
    session = session_of(f"{task.id}/{job.attempt}")
    begin = time.perf_counter()
    if job.again and shop.tape is not None:
        shop.tape.ask_again(session)
        shop.tape.ask_again(f"{session}/judge", everything=job.judged is not None)
    played: Played
    async with AsyncExitStack() as stack:
        workspace = Path(mkdtemp(prefix="stillweb-workspace-"))
        stack.push_async_callback(asyncio.to_thread, remove_folder, workspace)
        copy_uploads(shop.files.uploads, workspace, shop.settings.uploads)
        tools: Any = shop.open_session(session, workspace) or NoTools()
        stack.push_async_callback(tools.close)
        environment, requests = await stack.enter_async_context(shop.program_access(session, tools))
        trace = stack.enter_context(TraceWriter(shop.files.traces / trace_name(task.id, job.attempt)))
        _write_header(trace, shop, task, job.attempt, session)
        attempt = Attempt(
            task,
            job.attempt,
            session,
            tools,
            trace,
            shop.settings.limits,
            models=shop.models,
            environment=environment,
            requests=requests,
            on_change=display.changed if display else None,
            stop=known.stops.get((task.id, job.attempt)) if known else None,
            is_repetition=known is not None,
            workspace=workspace,
            hidden_paths=shop.files.hidden(shop.settings),
            allow_unconfined=shop.settings.allow_unconfined,
            fork=shop.settings.fork,
            seconds=time_of(shop.agent, shop.settings.limits.seconds, repeating=known is not None),
        )
        if display:
            display.changed(attempt)
        reason = job.unsolvable or task.meta.get("unsolvable")
        if job.judged is not None:
            played = copy_agent_part(attempt, read_trace(job.judged))
        elif reason:
            played = (None, "unsolvable", str(reason))
        else:
            if (prepare := getattr(tools, "prepare", None)) is not None:
                prepare()  # starts while the agent thinks about its first call
            played = await play(shop.agent, attempt, ending=shop.is_cancelled)
        score = await score_attempt(shop, attempt, played, tools, known)
        trace.finish()
    if display:
        display.left(attempt, time.perf_counter() - begin)
    return Outcome(
        job,
        played[1],
        score.status,
        score.metrics,
        counts_of(trace.events),
        played[2] or _reason(score),
        played[0],
    )


def _reason(score: Score) -> str | None:
    """Return why an attempt has no real score although its agent raised no error, or None."""
    problems = score.detail.get("problems")
    return str(problems[0]) if score.status != "scored" and problems else None


def _write_header(trace: TraceWriter, shop: RunResources, task: Task, number: int, session: str) -> None:
    rubric = shop.evaluator.rubric(task)
    trace.header(
        task=task.to_json(),
        rubric=None if rubric is None else as_json(rubric),
        attempt=number,
        session=session,
        snapshot=shop.snapshot_id,
        agent=identity_of(shop.agent),
        contracts=list(shop.settings.contracts),
        scoring=shop.evaluator.settings(),
        aside={"started": time.time()},
    )


class RayEngine:
    """Engine that runs jobs on a Ray cluster.

    `work` is not used: each worker opens the run's directory and calls `run_one` on the job.
    """

    def __init__(self, run_path: Path, parallel: int = 4) -> None:
        require("ray")
        self._path = run_path
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        path = str(self._path)
        try:
            await run_on_cluster(run_job, ((path, job) for job in jobs), self.parallel, done)
        finally:
            files = RunFiles(self._path)
            gather(files.tape(files.manifest()[0]))


def run_job(run_path: str, job: Job) -> Outcome:
    """Make one attempt of a run in this process and return its outcome.

    Everything but the job is read from the run's directory. Model calls go to a part of the tape.
    """

    async def once() -> Outcome:
        shop = RunResources.open(Path(run_path))
        tape = RunFiles(Path(run_path)).tape(shop.settings)
        shop.tape_part = part_of(tape, trace_name(job.task_id, job.attempt))
        async with shop:
            return await run_one(shop, job)

    return asyncio.run(once())


def make_engine(name: str, run_path: Path, parallel: int) -> Engine:
    """Return the engine called `name`: `local` or `ray`. Raise UsageError for another name."""
    if name == "local":
        return LocalEngine(parallel)
    if name == "ray":
        return RayEngine(run_path, parallel)
    raise UsageError(f"--engine: {name!r} is neither local nor ray")
