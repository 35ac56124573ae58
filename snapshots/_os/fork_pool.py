"""Parallel map over all cores, with results in the order of the jobs.

If this process has a single thread, the workers are its forks, which start in a few milliseconds and share
the jobs. Else they are new interpreters (`stillweb.snapshots._os.processes`), which take some hundred
milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import struct
from collections.abc import Callable, Generator, Sequence
from typing import BinaryIO

from stillweb.snapshots.errors import MissingCapability

_NUMBER = struct.Struct("<I")
_SIZE = struct.Struct("<Q")
_FAILED = (1 << 64) - 1


def can_fork() -> bool:
    """Return True if a fork is safe here, because there is no other thread.

    A lock that another thread holds would stay locked in the child forever.
    """
    try:
        return len(os.listdir("/proc/self/task")) == 1 and hasattr(os, "fork")
    except OSError:
        return False


def run_all(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    """Yield the result of each job, or None if its worker failed.

    The caller then runs the failed job itself, and sees the error. `function` must lie in a module. Exhaust
    or close the generator to end the workers.
    """
    if can_fork():
        return _forked(function, jobs, min(workers, len(jobs)))
    return _spawned(function, jobs, workers)


def _spawned(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    from stillweb.snapshots._os.processes import Pool, WorkerDied, WorkerFailed

    with Pool(workers) as pool:
        waiting = [pool.submit(function, job) for job in jobs]
        for number, future in enumerate(waiting):
            try:
                yield future.result()
            except (WorkerDied, WorkerFailed, MissingCapability):
                yield None
            waiting[number] = None  # type: ignore[call-overload]  # frees the memory of its result


class _Child:
    def __init__(
        self, function: Callable[[bytes], bytes], jobs: Sequence[bytes], others: list[_Child]
    ) -> None:
        asked, self.ask = os.pipe()
        self._answers, orders = os.pipe()
        self.job = -1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
                for fd in (self.ask, self._answers, *(fd for c in others for fd in (c.ask, c._answers))):
                    os.close(fd)  # so that all children end with the parent
                _serve(function, jobs, asked, orders)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(orders)
        self.told: BinaryIO = os.fdopen(self._answers, "rb")

    def begin(self, job: int) -> None:
        self.job = job
        with contextlib.suppress(BrokenPipeError):  # `take` reports the death of the worker
            os.write(self.ask, _NUMBER.pack(job))

    def take(self) -> tuple[bytes | None, bool]:
        """Return the result of the current job (None if it failed), and True if the worker is alive."""
        head = self.told.read(_SIZE.size)
        if len(head) < _SIZE.size:
            return None, False
        (size,) = _SIZE.unpack(head)
        if size == _FAILED:
            return None, True
        data = self.told.read(size)
        return (data, True) if len(data) == size else (None, False)

    def end(self) -> None:
        """Kill the worker and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.ask)
        self.told.close()


def _serve(function: Callable[[bytes], bytes], jobs: Sequence[bytes], asked: int, orders: int) -> None:
    """Run jobs in the child until the parent closes the pipe."""
    gc.freeze()  # leave the parent's objects untouched, so that their memory stays shared
    gc.set_threshold(100_000)
    while len(number := os.read(asked, _NUMBER.size)) == _NUMBER.size:
        try:
            result = function(jobs[_NUMBER.unpack(number)[0]])
            pieces = [_SIZE.pack(len(result)), result]
        except Exception:  # noqa: BLE001 -- the parent runs the job again and reports the error
            pieces = [_SIZE.pack(_FAILED)]
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(orders, view) :]


def _forked(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    children: list[_Child] = []
    results: dict[int, bytes | None] = {}
    waiting = iter(range(len(jobs)))
    following = 0
    try:
        with selectors.DefaultSelector() as ready:
            for _ in range(workers):
                child = _Child(function, jobs, children)
                children.append(child)
                ready.register(child.told, selectors.EVENT_READ, child)
                child.begin(next(waiting))
            while following < len(jobs):
                for key, _ in ready.select() if ready.get_map() else ():
                    child = key.data
                    results[child.job], lives = child.take()
                    number = next(waiting, None) if lives else None
                    if number is None:
                        ready.unregister(child.told)
                    else:
                        child.begin(number)
                while following in results:
                    yield results.pop(following)
                    following += 1
                if not ready.get_map():  # all workers have died
                    results.update((n, None) for n in waiting)
    finally:
        for child in children:
            child.end()
