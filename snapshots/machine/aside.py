"""A file that is written beside its place and moved there when whole, by one process at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots.errors import UsageError


@contextmanager
def aside(path: Path, *, wait: bool) -> Iterator[BinaryIO]:
    """A file to write, which takes `path`'s place at the end, or is gone where that was not reached.

    When its place is taken it is on the disk, and so is its name: a power loss leaves the old file or the new one.

    Its name is always the same, so that what a kill left is used up by the next one. While another process writes there,
    waits for it or raises UsageError. OSError names `path`.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        out = _alone(temporary, path, wait)
        with out:
            try:
                yield out
                out.flush()
                os.fsync(out.fileno())
                os.replace(temporary, path)  # still locked: who waited sees that its file has gone
                sync_folder(path.parent)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
    except OSError as error:
        if error.filename is not None and Path(os.fsdecode(error.filename)) == temporary:
            error.filename = str(path)  # for whom that is told, it is this one that can't be written
        raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk: a file that was moved is else where it was after a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that can't; nothing else is done about it
            raise
    finally:
        os.close(descriptor)


def _alone(temporary: Path, path: Path, wait: bool) -> BinaryIO:
    """The temporary file, empty and locked; not locked where the system or the file system knows no such lock."""
    while True:
        out = os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            _lock(out, path, wait)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(out.fileno()), temporary.stat()):
                    out.truncate(0)
                    return out
        except BaseException:
            out.close()
            raise
        out.close()  # while we waited it was moved to its place


def _lock(out: BinaryIO, path: Path, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(out, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise UsageError(f"{path}: is being written by another process") from None
    except OSError:
        return
