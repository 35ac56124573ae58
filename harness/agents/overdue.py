"""Hard timeout for agents that block the event loop or ignore cancellation.

The loop's timer can't end code that blocks the loop. So a signal is sent to the main thread: it interrupts
blocking calls (a sleep, a socket, a program) and Python code. Threads of the agent's own, and extensions that
never check for signals, can't be ended.
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

GRACE = 5.0  # seconds after the limit in which an agent may still end by the loop's cancellation
SIGNAL = signal.SIGURG  # ignored by default

_end: ContextVar[float] = ContextVar("end")  # end of the time of an agent and its tasks
_guards = 0
_before: Any = signal.SIG_DFL


class Overdue(BaseException):
    """Exception that ends an agent after its time limit. Agents must not catch it."""


@contextmanager
def ended_after(seconds: float | None) -> Iterator[None]:
    """Raise Overdue in the body if it still runs after `seconds`; in the main thread only."""
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
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)  # for code that blocks the loop
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(cancel)  # for code that swallowed a cancellation

    mark = _end.set(end)
    with _heard():
        threading.Thread(target=watch, name="stillweb-overdue", daemon=True).start()
        try:
            yield
        except BaseExceptionGroup as group:
            if group.subgroup(Overdue) is None:
                raise
        finally:
            try:  # a last signal may arrive between any two of these statements
                _end.reset(mark)
            finally:
                left.set()
                for _ in range(cancelled):
                    task.uncancel()
    if time.monotonic() > end:
        raise Overdue


@contextmanager
def _heard() -> Iterator[None]:
    """Install the signal handler, which concurrent attempts share."""
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
