"""Exclusive locks that end with their process: a kill leaves no lock behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillweb.snapshots.errors import UsageError


def lock(descriptor: int, busy: str | None) -> None:
    """Lock an open file or directory until it is closed.

    While another process holds the lock, raises UsageError with `busy`, or waits if that is None. On a file system
    that has no locks, nothing is locked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
    except BlockingIOError:
        raise UsageError(busy) from None
    except OSError:
        return


def lock_directory(path: Path, busy: str) -> int:
    """Return a descriptor that holds the lock of a directory until it is closed. Raises UsageError as `lock` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock(descriptor, f"{path}: {busy}")
    except UsageError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked_directory(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a directory inside the block. Raises UsageError as `lock` does."""
    descriptor = lock_directory(path, busy)
    try:
        yield
    finally:
        os.close(descriptor)
