"""An end for agents that hold the event loop beyond their time, or take no cancellation for an end.

The loop's own timer can't end who holds the loop. So a signal is sent to the main thread: it breaks off what waits there
(a sleep, a socket, a program) and what computes in Python. A thread of the agent's own, and an extension that computes
without looking up, can't be ended.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

GRACE = 5.0  # seconds beyond its time in which an agent may still end as the loop's timer tells it to
SIGNAL = signal.SIGURG  # which does nothing where nobody hears it

_end: ContextVar[float] = ContextVar("end")  # of its time, for an agent and the tasks that it begins
_guards = 0
_before: Any = signal.SIG_DFL


class Overdue(BaseException):
    """Ends an agent whose time is over: like a cancellation, no agent may catch it."""


@contextmanager
def ended_after(seconds: float | None) -> Iterator[None]:
    """Raises Overdue in what runs inside once its seconds are over and it does not end; in the main thread only."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    end, left, cancelled = time.monotonic() + seconds, threading.Event(), 0

    def cancel() -> None:
        nonlocal cancelled
        if not left.is_set():
            cancelled += 1
            task.cancel()

    def watch() -> None:
        wait = seconds + GRACE
        while not left.wait(wait):
            wait = GRACE
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)  # for who holds the loop
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(cancel)  # for who was told to end, and did not

    mark = _end.set(end)
    with _heard():
        threading.Thread(target=watch, name="stillweb-overdue", daemon=True).start()
        try:
            yield
        except BaseExceptionGroup as group:
            if group.subgroup(Overdue) is None:
                raise
        finally:
            try:  # a last signal may strike between any two of these
                _end.reset(mark)
            finally:
                left.set()
                for _ in range(cancelled):
                    task.uncancel()
    if time.monotonic() > end:
        raise Overdue


@contextmanager
def _heard() -> Iterator[None]:
    """Attempts beside each other share the handler."""
    global _guards, _before
    if not _guards:
        _before = signal.signal(SIGNAL, _hear)
    _guards += 1
    try:
        yield
    finally:
        _guards -= 1
        if not _guards:
            signal.signal(SIGNAL, _before)


def _hear(number: int, frame: Any) -> None:
    if time.monotonic() > _end.get(float("inf")):
        raise Overdue
