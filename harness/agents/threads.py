"""Threads that an agent leaves behind. Nothing can end them: it is said, and neither the run nor its process waits for them.

A thread of `asyncio.to_thread` belongs to the loop's executor, which its loop, and Python as it ends, would wait for;
one that the agent began itself is waited for by Python unless it is a daemon.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stillweb.snapshots.words import counted

T = TypeVar("T")
GRACE = 5.0  # seconds that what was left behind has when all else of the process is done
MOST_NAMED = 5
_OURS = "stillweb-"  # how the names of our own threads begin


@dataclass(slots=True)
class _Work:
    """A call in a thread: of the executor, or the whole of a thread that an agent began."""

    running: Callable[[], bool]
    name: str


class _Pool(ThreadPoolExecutor):
    """The threads of one attempt: it waits for no other's, nor do scorers for an agent's."""

    def __init__(self, name: str) -> None:
        super().__init__(thread_name_prefix=f"{_OURS}{name}")
        self.work: list[_Work] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See Executor."""
        work = _Work(lambda: False, "")

        def known() -> T:
            work.name = threading.current_thread().name
            return fn(*args, **kwargs)

        future = super().submit(known)
        work.running = future.running
        self.work.append(work)
        return future


_mine: ContextVar[_Pool] = ContextVar("mine")  # of an attempt and the tasks that it begins
_left: list[_Work] = []


class Threads(ThreadPoolExecutor):
    """A loop's executor: what an attempt asks of it is done by threads of the attempt's own."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See Executor."""
        mine = _mine.get(None)
        return super().submit(fn, *args, **kwargs) if mine is None else mine.submit(fn, *args, **kwargs)


@dataclass(slots=True)
class Behind:
    """The names of the threads that still ran when an attempt was over; filled in then."""

    names: list[str] = field(default_factory=list)


@contextmanager
def noticed(name: str) -> Iterator[Behind]:
    """Notices the threads that what runs inside, an attempt of that name, leaves behind.

    Of threads that agents begin themselves nobody knows whose they are: those begun meanwhile are named.
    """
    behind, mine = Behind(), _Pool(name)
    before = set(threading.enumerate())
    mark = _mine.set(mine)
    try:
        yield behind
    finally:
        _mine.reset(mark)
        mine.shutdown(wait=False, cancel_futures=True)
        begun = [
            _Work(one.is_alive, one.name)
            for one in threading.enumerate()
            if one not in before and not one.daemon and not one.name.startswith(_OURS)
        ]
        still = [*(work for work in mine.work if work.running()), *begun]
        _left.extend(still)
        behind.names = sorted(work.name for work in still)


def end_process(code: int) -> None:
    """Ends the process with this exit code where threads that agents left still run; returns where none do."""
    end = time.monotonic() + GRACE
    while (still := sorted({work.name for work in _left if work.running()})) and time.monotonic() < end:
        time.sleep(0.05)
    if still:
        more = f" and {len(still) - MOST_NAMED} more" if len(still) > MOST_NAMED else ""
        sys.stderr.write(
            f"stillweb: {counted(len(still), 'thread')} that an agent began still ran ({', '.join(still[:MOST_NAMED])}{more}); "
            "ended with this process\n"
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
