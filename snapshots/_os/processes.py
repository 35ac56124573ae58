"""Parallel work: forks of this process, which start in a few milliseconds, and workers that are new interpreters.

`multiprocessing` imports the caller's `__main__` in each spawned worker, so that a script without a guard runs again;
and forks of a process with threads hang. A worker that is a new interpreter receives pickled function names and arguments
on its standard input, and answers on its standard output. Functions must lie in an importable module. A worker ends with
its parent, even if the parent is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import selectors
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, Self, TypeVar, cast

from stillweb.snapshots.errors import MissingCapability

_SIZE = struct.Struct("<Q")


def can_fork() -> bool:
    """Return True if a fork is safe here, because there is no other thread.

    A lock that another thread holds would stay locked in the child forever.
    """
    try:
        return len(os.listdir("/proc/self/task")) == 1 and hasattr(os, "fork")
    except OSError:
        return False


class _Child:
    def __init__(self, others: list[_Child]) -> None:
        asked, ask = os.pipe()
        told, answers = os.pipe()
        self.job = -1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
                own = (fd.fileno() for child in others for fd in (child.ask, child.told))
                for fd in (ask, told, *own):
                    os.close(fd)  # so that all children end with the parent
                gc.freeze()  # leave the parent's objects untouched, so that their memory stays shared
                gc.set_threshold(100_000)
                answer_calls(os.fdopen(asked, "rb"), os.fdopen(answers, "wb"))
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answers)
        self.ask: BinaryIO = os.fdopen(ask, "wb")
        self.told: BinaryIO = os.fdopen(told, "rb")

    def begin(self, function: Callable[[bytes], bytes], number: int, job: bytes) -> None:
        self.job = number
        with contextlib.suppress(BrokenPipeError):  # `take` reports the death of the worker
            send(self.ask, pickle.dumps((function, job)))

    def take(self) -> tuple[bytes | None, bool]:
        """Return the result of the current job (None if it failed), and True if the worker is alive."""
        data = receive(self.told)
        if data is None:
            return None, False
        well, result = pickle.loads(data)
        return (result if well else None), True

    def end(self) -> None:
        """Kill the worker and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        with contextlib.suppress(BrokenPipeError):
            self.ask.close()
        self.told.close()


def forked(
    function: Callable[[bytes], bytes], jobs: Sequence[bytes], workers: int
) -> Generator[bytes | None, None, None]:
    """Yield the result of each job in their order, or None if its worker failed. The workers are forks of this process."""
    children: list[_Child] = []
    results: dict[int, bytes | None] = {}
    waiting = iter(enumerate(jobs))
    following = 0
    try:
        with selectors.DefaultSelector() as ready:
            for _ in range(workers):
                child = _Child(children)
                children.append(child)
                ready.register(child.told, selectors.EVENT_READ, child)
                child.begin(function, *next(waiting))
            while following < len(jobs):
                for key, _ in ready.select() if ready.get_map() else ():
                    child = key.data
                    results[child.job], lives = child.take()
                    more = next(waiting, None) if lives else None
                    if more is None:
                        ready.unregister(child.told)
                    else:
                        child.begin(function, *more)
                while following in results:
                    yield results.pop(following)
                    following += 1
                if not ready.get_map():  # all workers have died
                    results.update((n, None) for n, _ in waiting)
    finally:
        for child in children:
            child.end()


def send(stream: BinaryIO, data: bytes) -> None:
    """Write a message: its length, then its bytes."""
    stream.write(_SIZE.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Return the next message, or None if the other side is gone."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def answer_calls(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer each pickled function and argument by a pair: True and its result, or False and its error's text."""
    while (data := receive(asked)) is not None:
        try:
            function, argument = pickle.loads(data)
            answer = (True, function(argument))
            packed = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 -- sent to the caller, which decides
            packed = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        send(answers, packed)


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


OBJECTS = 100_000  # new objects that trigger a collection


@contextmanager
def rare_collection() -> Iterator[None]:
    """Collect garbage less often in this process inside the block."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
