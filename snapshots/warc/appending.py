"""Append-only archive files of an open snapshot, and their repair after a kill.

A record reaches the operating system in one piece under one lock, or is rolled back: after a full disk or an
interrupted write the file ends with the previous record.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots._os.atomic_write import atomic_file, naming, sync_folder
from stillweb.snapshots._os.random_access import CHUNK, FileSource
from stillweb.snapshots.errors import FULL_DISK, MissingCapability, NoRoom, StillwebError, UsageError
from stillweb.snapshots.warc.scan import Damage, scan
from stillweb.snapshots.words import pluralize


class AppendFile:
    """A file that only grows, by whole records. It takes no lock: the writer holds its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise not_written(path, error) from error
        self.size = os.lseek(self._fd, 0, os.SEEK_END)

    def append(self, *parts: bytes | BinaryIO) -> list[int]:
        """Append all parts or none, files from their start, and return the offset of each part.

        Raises MissingCapability on a full disk.
        """
        if self._fd < 0:
            raise UsageError(f"{self.path}: the recording has ended; record into it again to add to it")
        start = self.size
        offsets = []
        held = b""  # written in one call: each call releases the interpreter lock once
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
        with naming(self.path):
            os.ftruncate(self._fd, size)
        self.size = os.lseek(self._fd, size, os.SEEK_SET)

    def end(self) -> None:
        """Write the file and its directory entry to the disk (fsync), and close the file.

        A power loss can then only lose later records.
        """
        if self._fd >= 0:
            with naming(self.path):
                os.fsync(self._fd)
            sync_folder(self.path.parent)
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def full_disk(path: Path, error: OSError) -> NoRoom:
    """Return the error for a disk, quota or file size limit without room."""
    return NoRoom.at(path, error.strerror, "the earlier records are kept: free some space and continue")


def not_written(path: Path, error: OSError) -> StillwebError:
    """Return the error for a path that can't be written.

    The error is MissingCapability for faults of the machine (full disk, read-only file system), UsageError
    for all others.
    """
    if error.errno in FULL_DISK:
        return full_disk(path, error)
    text = f"{path}: can't be written: {error.strerror}"
    if error.errno == errno.EROFS:
        return MissingCapability(f"{text}; choose another place")
    return UsageError(text)


def write_text(path: Path, text: str) -> int:
    """Write `text` like `write_whole`, as UTF-8; lone surrogates become `\\uXXXX` escapes."""
    return write_whole(path, [text.encode("utf-8", "backslashreplace")])


def write_whole(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a file under a temporary name and rename it, so that no reader sees it half written.

    Returns its size. Links are followed. A path that exists and is no regular file (`/dev/stdout`) is
    written directly. Raises MissingCapability on a full disk, and OSError that names `path` for any other
    reason.
    """
    place = Path(os.path.realpath(path))
    size = 0
    try:
        with (
            atomic_file(place, wait=True)
            if place.is_file() or not place.exists()
            else open(path, "wb") as out
        ):
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
    """Cut off an incomplete last record. Return a note for the user, or None if the file was complete."""
    place = FileSource(path)
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
        f" {pluralize(size - damage.offset, 'byte')} cut off at offset {damage.offset}"
    )
