"""Parallel map by forks of this process, which start in a few milliseconds, and the messages of all workers."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import signal
import struct
from collections.abc import Callable, Generator, Sequence
from typing import BinaryIO

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
