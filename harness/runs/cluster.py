"""Attempts on a Ray cluster (optional), and the choice of an engine by its name.

A job, which is plain data, goes to a Ray worker that opens the run's directory for itself, so the directory must be on
storage that all nodes share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stillweb.harness.models.parts import gather, part_of
from stillweb.harness.runs.engine import Done, Engine, Job, LocalEngine, Outcome, Work
from stillweb.harness.runs.run_files import RunFiles, trace_name
from stillweb.harness.runs.runner import run_one
from stillweb.harness.runs.workshop import Workshop
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require

STOP_SECONDS = 60.0


class RayEngine:
    """Jobs on a Ray cluster. `work` is not used: a worker makes its own from the run's directory; the job says the rest."""

    def __init__(self, run_path: Path, parallel: int = 4) -> None:
        self._ray: Any = require("ray")
        self._path = run_path
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        """See Engine."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers of each start
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
            if running:  # what they have recorded is whole when they have ended
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
    """Makes one attempt of a run in this process, from its directory alone. Model calls go to a part of the tape."""

    async def once() -> Outcome:
        shop = Workshop.open(Path(run_path))
        tape = RunFiles(Path(run_path)).tape(shop.settings)
        shop.tape_part = part_of(tape, trace_name(job.task_id, job.attempt))
        async with shop:
            return await run_one(shop, job)

    return asyncio.run(once())


def make_engine(name: str, run_path: Path, parallel: int) -> Engine:
    """The engine of that name: `local` or `ray`."""
    if name == "local":
        return LocalEngine(parallel)
    if name == "ray":
        return RayEngine(run_path, parallel)
    raise UsageError(f"--engine: {name!r} is neither local nor ray")
