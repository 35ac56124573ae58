"""Engines, which run jobs and report their outcomes.

`LocalEngine` runs jobs in this process on one event loop; `stillweb.harness.runs.runner` has an engine for
many machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stillweb.harness.trace import Counts
from stillweb.snapshots.errors import UsageError

if TYPE_CHECKING:
    from stillweb.harness.runs.repeating import KnownEnds


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt to make, with what is known beforehand.

    `unsolvable` says why the snapshot holds no answer; `known` says how attempts of an earlier run ended.
    """

    task_id: str
    attempt: int
    unsolvable: str | None = field(default=None, compare=False)
    known: KnownEnds | None = field(default=None, compare=False, repr=False)
    # the attempt failed before: refused requests are sent again
    again: bool = field(default=False, compare=False)
    # the trace to take the agent's part from, when only its judge is asked again
    judged: Path | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an attempt: `end` as in an answer event, `status` and `metrics` as in its score."""

    job: Job
    end: str
    status: str
    metrics: dict[str, float | None] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    error: str | None = None
    answer: str | None = None


Work = Callable[[Job], Awaitable[Outcome]]
Done = Callable[[Outcome], None]


class Engine(Protocol):
    """Runner of jobs: runs each once and calls `done` in the caller's thread as it ends, in any order."""

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        """Return when all jobs are done. When cancelled, end all jobs."""
        ...


class LocalEngine:
    """Engine that runs `parallel` attempts at a time on the running event loop."""

    def __init__(self, parallel: int = 4) -> None:
        if parallel < 1:
            raise UsageError(f"--parallel: must be at least 1, not {parallel}")
        self.parallel = parallel

    async def run(self, jobs: Iterable[Job], work: Work, done: Done) -> None:
        every = list(jobs)
        waiting = iter(every)
        caller = asyncio.current_task()

        async def worker() -> None:
            for job in waiting:  # the workers share this iterator
                if caller is not None and caller.cancelling():
                    raise asyncio.CancelledError  # the job may have swallowed its own cancellation
                done(await work(job))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.parallel, len(every))):
                group.create_task(worker())
