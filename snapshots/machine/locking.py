"""One process at a time in a directory, for as long as it lives: a kill leaves no lock behind."""

from __future__ import annotations

import os
from pathlib import Path

from stillweb.snapshots.errors import UsageError


def lock_directory(path: Path, busy: str) -> int:
    """A handle that holds the lock until it is closed; -1 where the system or the file system knows no such lock.

    Raises UsageError with `busy` while another process holds it.
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
