"""Engines: where attempts run. An engine maps jobs to outcomes and knows nothing else.

`LocalEngine` runs them in this process on one event loop; `stillweb.harness.runs.cluster` has the one for many machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stillweb.snapshots.errors import UsageError

if TYPE_CHECKING:
    from stillweb.harness.runs.repeating import Known


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt to make, and what is told of it beforehand: why no answer is there, what ended in an earlier run."""

    task_id: str
    attempt: int
    unsolvable: str | None = field(default=None, compare=False)
    known: Known | None = field(default=None, compare=False, repr=False)
    again: bool = field(
        default=False, compare=False
    )  # it failed and is made again: what was refused is asked anew
    judged: Path | None = field(default=None, compare=False)  # its trace, where only its judge is asked again


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
    answer: str | None = None


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
        caller = asyncio.current_task()

        async def worker() -> None:
            for job in waiting:  # shared: each worker takes the next one
                if caller is not None and caller.cancelling():
                    raise asyncio.CancelledError  # a job may have swallowed its own
                done(await work(job))

        async with asyncio.TaskGroup() as group:
            for _ in range(self.parallel):
                group.create_task(worker())
