"""Threads that an agent leaves running. They can't be ended, so they are reported and not waited for.

A thread of `asyncio.to_thread` belongs to the loop's executor, which the loop and the exiting interpreter
would wait for. A thread that the agent started itself is waited for by Python unless it is a daemon.
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
GRACE = 5.0  # seconds that leftover threads get at the end of the process
MOST_NAMED = 5
_OURS = "stillweb-"  # prefix of the names of our own threads


@dataclass(slots=True)
class _Work:
    """Work in a thread: a call of the executor, or a whole thread that an agent started."""

    running: Callable[[], bool]
    name: str


class _Pool(ThreadPoolExecutor):
    """Thread pool of one attempt, so that neither other attempts nor scorers wait for its threads."""

    def __init__(self, name: str) -> None:
        super().__init__(thread_name_prefix=f"{_OURS}{name}")
        self.work: list[_Work] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        work = _Work(lambda: False, "")

        def known() -> T:
            work.name = threading.current_thread().name
            return fn(*args, **kwargs)

        future = super().submit(known)
        work.running = future.running
        self.work.append(work)
        return future


_mine: ContextVar[_Pool] = ContextVar("mine")  # pool of an attempt and its tasks
_left: list[_Work] = []


class Threads(ThreadPoolExecutor):
    """Executor of a loop that passes the work of an attempt to the attempt's own pool."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        mine = _mine.get(None)
        return super().submit(fn, *args, **kwargs) if mine is None else mine.submit(fn, *args, **kwargs)


@dataclass(slots=True)
class Behind:
    """Names of the threads that still ran when an attempt was over; filled in then."""

    names: list[str] = field(default_factory=list)


@contextmanager
def noticed(name: str) -> Iterator[Behind]:
    """Record the threads that the body, the attempt `name`, leaves running.

    Threads that agents start themselves can't be attributed to an attempt: all started meanwhile are named.
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
    """End the process with this exit code if threads of agents still run after GRACE seconds; else return."""
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
