"""How a command that serves is ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from stillweb.snapshots.machine.signals import heard_signals, hearing


class Until:
    """How a server ends: 130 for Ctrl-C, 129 for a terminal that closes, 0 for SIGTERM, which is how a script ends one."""

    def __init__(self) -> None:
        # one that a signal's handler may fill while it is looked at: setting an Event then waits for itself
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._code = 0

    def wait(self) -> int:
        """The exit code, at the end."""
        self._ended.get()
        return self._code

    @contextmanager
    def signals(self) -> Iterator[None]:
        """While the signals count."""

        def end(number: int, _: object) -> None:
            self._code = 0 if number == signal.SIGTERM else 128 + number
            self._ended.put(None)

        with hearing(heard_signals(), end):
            yield
