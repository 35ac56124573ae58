"""A process of ours: a fork of this one where that is safe, which begins in milliseconds, else a new interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from stillweb.snapshots.machine.forks import can_fork
from stillweb.snapshots.machine.signals import SIGNALS


class Child(Protocol):
    """What is needed of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def may_fork() -> bool:
    """Whether this process has one thread, and no event loop under way that the child would have, too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return can_fork()
    return False


class Fork:
    """A fork that runs a function and ends with what it returns."""

    def __init__(self, run: Callable[[], int]) -> None:
        self._code: int | None = None
        gc.freeze()  # what is here stays in memory that both have
        try:
            with _unheard():
                self.pid = os.fork()
                if self.pid == 0:
                    _child(run)
        finally:
            gc.unfreeze()

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has waited for all children
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end. Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                assert timeout is not None
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return code

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def spawn(module: str, settings: dict[str, Any], fds: Sequence[int]) -> Child:
    """A new interpreter that runs a module of ours with settings, and has these descriptors."""
    with _unheard():
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, json.dumps(settings)],
            pass_fds=tuple(fds),
            stdin=subprocess.DEVNULL,
        )


def leave_signals_to_the_parent() -> None:
    """What a terminal or a service manager sends to all processes ends the parent, and it ends us."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """A child begins with our signals blocked, until it has said what they mean to it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _child(run: Callable[[], int]) -> None:
    code = 70
    try:
        code = run()
    except BaseException:  # noqa: BLE001 -- nothing of the parent's may run on in here
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
