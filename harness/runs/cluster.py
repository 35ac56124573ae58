"""Attempts on a Ray cluster (optional), and the choice of an engine by name.

A job is plain data. The Ray worker that gets it opens the run's directory by itself, so the directory must be
on storage that all nodes share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stillweb.harness.models.tape import gather, part_of
from stillweb.harness.runs.engine import Done, Engine, Job, LocalEngine, Outcome, Work
from stillweb.harness.runs.run_files import RunFiles, trace_name
from stillweb.harness.runs.runner import run_one
from stillweb.harness.runs.workshop import Workshop
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require

STOP_SECONDS = 60.0


class RayEngine:
    """Engine that runs jobs on a Ray cluster.

    `work` is not used: each worker opens the run's directory and calls `run_one` on the job.
    """

    def __init__(self, run_path: Path, parallel: int = 4) -> None:
        self._ray: Any = require("ray")
        self._path = run_path
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            # Ray would report every start to its makers
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        remote = ray.remote(run_job)
        waiting, running = iter(jobs), set()
        try:
            for job in waiting:
                running.add(remote.remote(str(self._path), job))
                if len(running) >= self.parallel:
                    running = await self._next(running, done)
            while running:
                running = await self._next(running, done)
        finally:
            for reference in running:
                ray.cancel(reference)
            if running:  # wait for the cancelled jobs to write out what they recorded
                await asyncio.to_thread(
                    ray.wait, list(running), num_returns=len(running), timeout=STOP_SECONDS
                )
            if ours:
                ray.shutdown()
            files = RunFiles(self._path)
            gather(files.tape(files.manifest()[0]))

    async def _next(self, running: set[Any], done: Done) -> set[Any]:
        ready, rest = await asyncio.to_thread(self._ray.wait, list(running), num_returns=1)
        for reference in ready:
            done(await reference)
        return set(rest)


def run_job(run_path: str, job: Job) -> Outcome:
    """Make one attempt of a run in this process and return its outcome.

    Everything but the job is read from the run's directory. Model calls go to a part of the tape.
    """

    async def once() -> Outcome:
        shop = Workshop.open(Path(run_path))
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
