"""Atomic replacement of files and folders: write under a temporary name, then rename, by one process at a time."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots._os.locking import lock, locked_directory
from stillweb.snapshots.errors import DISK, no_room


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Have errors name `path` in place of `temporary`, and those of a disk, for which the system names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            unnamed = error.errno in DISK
        else:
            unnamed = Path(os.fsdecode(error.filename)) == temporary
        if unnamed:
            error.filename = str(path)
        raise


@contextmanager
def atomic_file(path: Path, *, wait: bool) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends, and is deleted if the block fails.

    The file and its directory entry are synced: after a power loss, the old file or the new one is there. The
    temporary name is always the same, so that the next writer reuses what a kill left behind. While another
    process writes there, waits for it, or raises UsageError without `wait`. OSError names `path`.
    """
    temporary = path.with_name(f".{path.name}.new")
    with naming(path, temporary), _alone(temporary, path, wait) as out:
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            os.replace(temporary, path)  # still locked: a waiting process sees that its file is gone
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends, and is deleted if the block fails.

    `path` does not exist, or is an empty folder. The temporary name is always the same, so that the next command
    removes what a kill left behind. Raises UsageError while another process writes there, and NoRoom, which names
    `path`.
    """
    temporary = path.with_name(f".{path.name}.new")
    with naming(path, temporary):
        temporary.mkdir(parents=True, exist_ok=True)
    with locked_directory(temporary, f"another process is writing {path}; wait until it has ended"):
        try:
            for one in temporary.iterdir():
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
            yield temporary
            if path.exists():
                path.rmdir()
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if (text := no_room(error, path)) is not None:
                raise text from error
            raise


def sync_folder(folder: Path) -> None:
    """Write the directory entries of a folder to the disk: else a power loss may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: this file system can't sync directories
            raise
    finally:
        os.close(descriptor)


def _alone(temporary: Path, path: Path, wait: bool) -> BinaryIO:
    """Return the temporary file, empty and locked."""
    busy = None if wait else f"{path}: is being written by another process"
    while True:
        out = os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            lock(out.fileno(), busy)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(out.fileno()), temporary.stat()):
                    out.truncate(0)
                    return out
        except BaseException:
            out.close()
            raise
        out.close()  # it was renamed while we waited


def is_below(name: str) -> bool:
    """Return True if a name leads to a file below any folder, on this system."""
    lone = name.encode("utf-8", "replace").decode() != name  # half a surrogate pair
    return not lone and not ({"", ".", ".."} & {*name.split("/")} or {os.sep, "\0"} - {"/"} & {*name})
