"""Exclusive directory locks that end with their process: a kill leaves no lock behind."""

from __future__ import annotations

import os
from pathlib import Path

from stillweb.snapshots.errors import UsageError


def lock_directory(path: Path, busy: str) -> int:
    """Return a handle that holds the lock until it is closed; -1 if the system has no such lock.

    Raises UsageError with `busy` while another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:
        return -1
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"{path}: {busy}") from None
    except OSError:
        os.close(handle)
        return -1
    return handle
