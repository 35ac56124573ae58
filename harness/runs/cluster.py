"""Attempts on a Ray cluster (optional), and the choice of an engine by name.

A job is plain data. The Ray worker that gets it opens the run's directory by itself, so the directory must be
on storage that all nodes share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from stillweb.harness.models.tape import gather, part_of
from stillweb.harness.runs.engine import Done, Engine, Job, LocalEngine, Outcome, Work
from stillweb.harness.runs.resources import RunResources
from stillweb.harness.runs.run_files import RunFiles, trace_name
from stillweb.harness.runs.runner import run_one
from stillweb.snapshots._os.cluster import run_on_cluster
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require


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
