"""Worker processes that don't import the caller's script.

`multiprocessing` imports the caller's `__main__` in each spawned worker, so that a script without a guard
runs again; and forks of a process with threads hang. Here a worker is a new interpreter that receives pickled
function names and arguments on its standard input, and answers on its standard output. Functions must lie in
an importable module. A worker ends with its parent, even if the parent is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Self, TypeVar, cast

from stillweb.snapshots._os.fork_pool import answer_calls, can_fork, forked, receive, send
from stillweb.snapshots.errors import MissingCapability

T = TypeVar("T")

_READY = b"stillweb worker"
# Not `-m`: that puts the current directory before the standard library. The worker gets the caller's path.
_START = "import sys; sys.path[:] = sys.argv[1:]; from stillweb.snapshots._os.processes import work; work()"


class WorkerDied(Exception):
    """The worker process ended before it answered: out of memory, a crash in a library, or a kill."""


class WorkerFailed(Exception):
    """The function raised an exception, whose text this one carries."""


class Worker:
    """One worker process. Not thread-safe."""

    def __init__(self) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as error:
            raise MissingCapability(f"a worker process can't be started ({error.strerror})") from error
        self._in = cast(BinaryIO, self._process.stdin)
        self._out = cast(BinaryIO, self._process.stdout)
        self._ready = False

    def call(self, function: Callable[[Any], T], argument: Any) -> T:
        """Return `function(argument)`, computed in the worker.

        Raises WorkerDied or WorkerFailed, and MissingCapability if the worker never started.
        """
        if not self._ready:
            if self._read() != _READY:
                raise MissingCapability(
                    "a worker process ended while it started; what it said stands above, if anything"
                )
            self._ready = True
        with contextlib.suppress(BrokenPipeError):  # the next read reports it
            send(self._in, pickle.dumps((function, argument), pickle.HIGHEST_PROTOCOL))
        data = self._read()
        if data is None:
            raise WorkerDied(f"a worker process ended with code {self._process.wait()}")
        well, value = pickle.loads(data)
        if not well:
            raise WorkerFailed(value)
        return cast(T, value)

    def _read(self) -> bytes | None:
        return receive(self._out)

    def kill(self) -> None:
        """Kill the process now; a running call in another thread raises."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        self._out.close()


class Pool:
    """A pool of up to `workers` workers, started on demand and replaced when they die. A context manager."""

    def __init__(self, workers: int) -> None:
        self.size = workers
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._all: list[Worker] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="stillweb-worker")

    def submit(self, function: Callable[[Any], T], argument: Any) -> Future[T]:
        """Return the future of `function(argument)`; it raises like `Worker.call`."""
        return self._threads.submit(self._call, function, argument)

    def _call(self, function: Callable[[Any], T], argument: Any) -> T:
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = self._start()
        try:
            result = worker.call(function, argument)
        except WorkerFailed:
            self._idle.put(worker)
            raise
        except BaseException:
            worker.close()
            raise
        self._idle.put(worker)
        return result

    def _start(self) -> Worker:
        with self._lock:
            if self._closed:
                raise WorkerDied("the pool is closed")
            worker = Worker()
            self._all.append(worker)
            return worker

    def close(self) -> None:
        """Kill all workers, even in the middle of a job."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_all(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    """Yield the result of each job, in the order of the jobs, or None if its worker failed.

    If this process has a single thread, the workers are its forks. Else they are new interpreters, which take some
    hundred milliseconds to start.

    The caller then runs the failed job itself, and sees the error. `function` must lie in a module. Exhaust
    or close the generator to end the workers.
    """
    if can_fork():
        return forked(function, jobs, min(workers, len(jobs)))
    return _spawned(function, jobs, workers)


def _spawned(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    with Pool(workers) as pool:
        waiting = [pool.submit(function, job) for job in jobs]
        for number, future in enumerate(waiting):
            try:
                yield future.result()
            except (WorkerDied, WorkerFailed, MissingCapability):
                yield None
            waiting[number] = None  # type: ignore[call-overload]  # frees the memory of its result


def work() -> None:
    """Answer calls in the worker until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    asked = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # keep output of libraries out of the answers
    # Most objects are freed by reference counts; frequent searches for cycles cost 2 % of the time.
    gc.set_threshold(20_000, 20, 20)
    try:
        send(answers, _READY)
        answer_calls(asked, answers)
    except BrokenPipeError:
        os._exit(0)  # whoever asked was killed
