"""Engines: where attempts run. An engine maps jobs to outcomes and knows nothing else.

`local` runs them in this process on one event loop. `ray` (optional) sends each job, which is plain data, to a
Ray worker that opens the run's directory for itself, so the directory must be on storage all nodes share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from snapshots.errors import MissingCapability, UsageError


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt to make."""

    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: `end` as in an answer event, `status` and `metrics` as in its score."""

    job: Job
    end: str
    status: str
    metrics: dict[str, float | None] = field(default_factory=dict)
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    misses: int = 0
    error: str | None = None


Work = Callable[[Job], Awaitable[Outcome]]
Done = Callable[[Outcome], None]


class Engine(Protocol):
    """Runs every job once; `done` is called in the caller's thread as each ends, in any order."""

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        """Returns when all are done. When cancelled, no job goes on."""
        ...


class LocalEngine:
    """`parallel` attempts at a time on the running event loop."""

    def __init__(self, parallel: int = 4) -> None:
        if parallel < 1:
            raise UsageError(f"--parallel: must be at least 1, not {parallel}")
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        """See Engine."""
        waiting = iter(jobs)

        async def worker() -> None:
            for job in waiting:  # shared: each worker takes the next one
                done(await work(job))

        async with asyncio.TaskGroup() as group:
            for _ in range(self.parallel):
                group.create_task(worker())


class RayEngine:
    """Jobs on a Ray cluster. `work` is not used: a worker makes its own from the run's directory."""

    def __init__(self, run_path: Path, parallel: int = 4) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingCapability(
                "--engine ray: the package ray is not installed (pip install ray)"
            ) from error
        self._ray: Any = ray
        self._path = run_path
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        """See Engine."""
        from harness.run_files import RunFiles
        from harness.tape import gather

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
    from harness.run_files import RunFiles, trace_name
    from harness.runner import run_one
    from harness.tape import part_of
    from harness.workshop import Workshop

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
