"""Appending whole records to the archive files of an open snapshot, and mending what a kill left.

A record reaches the operating system in one piece under one lock, or it is taken back: after a full disk or
an interrupted write the file ends where the record before it ended.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots.archives.scan import Damage, scan
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from stillweb.snapshots.machine.aside import aside, sync_folder
from stillweb.snapshots.machine.places import CHUNK, FilePlace
from stillweb.snapshots.words import counted

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class AppendFile:
    """A file that only grows, by whole pieces. Not locked: the writer holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise not_written(path, error) from error
        self.size = os.lseek(self._fd, 0, os.SEEK_END)

    def append(self, *parts: bytes | BinaryIO) -> list[int]:
        """Appends all parts or none, files from their start; returns their offsets.

        Raises MissingCapability on a full disk.
        """
        start = self.size
        offsets = []
        held = b""  # written together: each call gives up the interpreter once
        try:
            for part in parts:
                offsets.append(self.size + len(held))
                if isinstance(part, bytes):
                    held += part
                    continue
                self._write(held)
                held = b""
                part.seek(0)
                while piece := part.read(CHUNK):
                    self._write(piece)
            self._write(held)
        except BaseException as error:
            self._take_back(start)
            if isinstance(error, OSError) and error.errno in FULL_DISK:
                raise full_disk(self.path, error) from error
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(self.path)
            raise
        return offsets

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self.size += count
            view = view[count:]

    def _take_back(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = os.lseek(self._fd, size, os.SEEK_SET)

    def end(self) -> None:
        """Write all of the file and its name to the disk, and close it; what power loss can take is what came after."""
        if self._fd >= 0:
            os.fsync(self._fd)
            sync_folder(self.path.parent)
        self.close()

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def full_disk(path: Path, error: OSError) -> MissingCapability:
    """The error for a disk (or quota, or file size limit) that has no room."""
    return MissingCapability(
        f"{path}: {error.strerror}; what was recorded before is kept: free some space and go on"
    )


def not_written(path: Path, error: OSError) -> StillwebError:
    """The error for what can't be written at all: the machine's (full disk, read-only place), else wrong usage."""
    if error.errno in FULL_DISK:
        return full_disk(path, error)
    said = f"{path}: can't be written: {error.strerror}"
    if error.errno == errno.EROFS:
        return MissingCapability(f"{said}; choose another place")
    return UsageError(said)


def write_text(path: Path, text: str) -> int:
    """As `write_whole`, of a text as UTF-8; half a surrogate pair in it as JSON escapes it."""
    return write_whole(path, [text.encode("utf-8", "backslashreplace")])


def write_whole(path: Path, pieces: Iterable[bytes]) -> int:
    """Writes a file beside its place and moves it there, so that it is never seen half written.

    A link is followed, and what is there and no file (`/dev/stdout`) is written to. Returns the size. Raises
    MissingCapability on a full disk, and OSError with this path for any other reason.
    """
    place = Path(os.path.realpath(path))
    size = 0
    try:
        with aside(place, wait=True) if place.is_file() or not place.exists() else open(path, "wb") as out:
            for piece in pieces:
                size += out.write(piece)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise full_disk(path, error) from error
        if error.filename is not None:
            error.filename = str(path)
        raise
    return size


def repair(path: Path) -> str | None:
    """Cuts a record off that was not written to its end; says what was done, None if nothing had to be."""
    place = FilePlace(path)
    try:
        damage = None
        for item in scan(place):
            damage = item if isinstance(item, Damage) and item.truncated else None
        size = place.size
    finally:
        place.close()
    if damage is None or size == damage.offset:
        return None
    os.truncate(path, damage.offset)
    return (
        f"{path.name}: the last record was not written to its end:"
        f" {counted(size - damage.offset, 'byte')} cut off at offset {damage.offset}"
    )
