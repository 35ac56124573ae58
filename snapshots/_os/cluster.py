"""Jobs on the workers of a Ray cluster (optional).

A job is a function of an importable module and plain arguments. Files that it names must be on storage that all
nodes share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

from stillweb.snapshots._os.processes import WorkerDied
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.extras import require

T = TypeVar("T")
STOP_SECONDS = 60.0


@contextmanager
def connect(ray: Any) -> Iterator[None]:
    """Connect to the cluster that RAY_ADDRESS names, or start one here, for the duration of the context."""
    if ray.is_initialized():
        yield
        return
    # Ray would report every start to its makers
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def cores(ray: Any) -> int:
    return int(ray.cluster_resources().get("CPU", 0)) or 1


async def run_on_cluster(
    function: Callable[..., T],
    jobs: Iterable[tuple[Any, ...]],
    parallel: int | None,
    done: Callable[[T], None],
) -> None:
    """Call `function` with the arguments of each job on Ray workers, and `done` with each result, in any order.

    `parallel` is the most jobs at once; None: one for each core. The jobs of a lost worker are done again by
    others, three times at most. When cancelled, end all jobs. Raises what a job raised, and MissingCapability
    for a job whose workers were lost each time.
    """
    ray: Any = require("ray")
    with connect(ray):
        remote = ray.remote(function)
        most = parallel or cores(ray)
        running: set[Any] = set()

        async def next_ones() -> None:
            ready, rest = await asyncio.to_thread(ray.wait, list(running), num_returns=1)
            running.intersection_update(rest)
            for reference in ready:
                try:
                    result = await reference
                except Exception as error:
                    raise plain_error(ray, error) from error
                done(result)

        try:
            for job in jobs:
                running.add(remote.remote(*job))
                if len(running) >= most:
                    await next_ones()
            while running:
                await next_ones()
        finally:
            for reference in running:
                ray.cancel(reference)
            if running:  # wait for the cancelled jobs to write out what they recorded
                await asyncio.to_thread(
                    ray.wait, list(running), num_returns=len(running), timeout=STOP_SECONDS
                )


def plain_error(ray: Any, error: BaseException) -> BaseException:
    """Return the error that a job raised in place of Ray's wrapping of it; MissingCapability for a lost worker."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    if isinstance(error, ray.exceptions.RayError):
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return MissingCapability(
            f"Ray: a job's workers were lost, the last one too: {line}. Give it more memory"
        )
    return error


class RayPool:
    """Workers of a Ray cluster, with the methods of `stillweb.snapshots._os.processes.Pool`."""

    def __init__(self) -> None:
        self._ray: Any = require("ray")
        self._stack = ExitStack()
        self.size = 1  # workers; known within the context

    def submit(self, function: Callable[[Any], T], argument: Any) -> Future[T]:
        """Return the future of `function(argument)`; it raises WorkerDied if its workers were lost each time."""
        made: Future[T] = Future()

        def tell(answer: Future[T]) -> None:
            error = answer.exception()
            if error is None:
                made.set_result(answer.result())
            elif getattr(error, "cause", None) is None and isinstance(error, self._ray.exceptions.RayError):
                made.set_exception(WorkerDied(str(error)))
            else:
                made.set_exception(plain_error(self._ray, error))

        self._ray.remote(function).remote(argument).future().add_done_callback(tell)
        return made

    def __enter__(self) -> Self:
        self._stack.enter_context(connect(self._ray))
        self.size = cores(self._ray)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def workers_of(name: str) -> Callable[[], RayPool] | None:
    """Return the function that makes workers of the engine `name`; None for processes of this machine."""
    return RayPool if name == "ray" else None
