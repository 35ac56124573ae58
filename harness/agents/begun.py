"""What a program began: ended also where it gave itself a session of its own, as daemons and many servers do.

A process group ends with one signal, but `setsid` leaves it. On Linux such processes are known by a mark in the
environment that they were started with, which children inherit, and by their parents while these live. One that cleared
its environment and outlives who began it is not found; nor is any on another system.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "STILLWEB_PROGRAM"  # the variable that holds the mark


def end_begun(mark: str) -> int:
    """Kills all that has the mark, and what that began; returns how many were found alive.

    They may go on for a moment, and may have begun others before: to be called until nothing is found.
    """
    if not hasattr(os, "pidfd_open"):
        return 0
    alive = {pid: lineage for pid in _pids() if (lineage := _lineage(pid)) is not None}
    variable = f"{MARK}={mark}".encode()
    found = {pid for pid in alive if variable in _environment(pid)}
    while more := {pid for pid, (parent, _) in alive.items() if parent in found} - found:
        found |= more
    for pid in found:
        _kill(pid, alive[pid])
    return len(found)


def _kill(pid: int, lineage: tuple[int, int]) -> None:
    """Kills a process if it is still the one that was looked at: its number may be another's by now."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            now = _lineage(pid)
            if now is not None and now[1] == lineage[1]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _lineage(pid: int) -> tuple[int, int] | None:
    """The parent, and when the process began (ticks since the machine did); None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()  # its state and on
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with; none of one that we may not look into."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
