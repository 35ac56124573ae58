"""Wait for the end of a command that serves, and its exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from stillweb.snapshots._os.signals import heard_signals, hearing


class Until:
    """End of a server: exit code 130 for Ctrl-C, 129 for a closed terminal, 0 for SIGTERM (sent by scripts)."""

    def __init__(self) -> None:
        # SimpleQueue.put is reentrant: in a signal handler, Event.set could deadlock with wait
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._code = 0

    def wait(self) -> int:
        """Wait for a signal; return the exit code."""
        self._ended.get()
        return self._code

    def end(self) -> None:
        """End the wait, from another thread."""
        self._ended.put(None)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle the signals while the context is open."""

        def end(number: int, _: object) -> None:
            self._code = 0 if number == signal.SIGTERM else 128 + number
            self._ended.put(None)

        with hearing(heard_signals(), end):
            yield
