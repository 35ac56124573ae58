"""Bytes that can be read at any offset: a local file, a stored zip entry, a remote object, memory.

A `ByteSource` is read with `read(offset, length)`. Reading is safe in many threads and after a fork: local files
are read with `os.pread`, which shares no file position.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError

CHUNK = 1 << 20

DISK = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)  # errors of a failing local or network disk


class ByteSource(Protocol):
    """Random access to `size` bytes. `name` is for messages."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return at most `length` bytes from `offset`; fewer only at the end, none outside."""

    def close(self) -> None:
        """Free all resources; a second call does nothing."""


class Unreadable(DamagedInput):
    """The disk fails to return the bytes of a file."""


class FileSource:
    """A local file, or `size` bytes of it from `base` on (an entry of a zip)."""

    def __init__(
        self, path: str | os.PathLike[str], *, base: int = 0, size: int | None = None, name: str = ""
    ) -> None:
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise MissingCapability(
                    f"{path}: too many files are open at once; allow more of them (`ulimit -n`), or make one snapshot of"
                    " them all: stillweb import FILES -o DIR"
                ) from error
            raise DamagedInput(f"{path}: can't be opened: {error.strerror}") from error
        self.path = Path(path)
        self.base = base
        self.size = os.fstat(self._fd).st_size - base if size is None else size
        self.name = name or str(path)

    def fileno(self) -> int:
        """Return the file descriptor, for mmap."""
        return self._fd

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0 or offset < 0:  # as a damaged index may say
            return b""
        try:
            data = os.pread(self._fd, length, self.base + offset)
            if len(data) == length or not data:
                return data
            parts = [data]  # the system may return less than requested, for instance above 2 GB
            have = len(data)
            while have < length and (data := os.pread(self._fd, length - have, self.base + offset + have)):
                parts.append(data)
                have += len(data)
        except OSError as error:
            if self._fd < 0:
                raise UsageError(
                    f"{self.name}: was closed; open it again, or read what you need before closing it"
                ) from None
            if error.errno not in DISK:
                raise
            raise Unreadable(f"{self.name}: offset {offset}: can't be read ({error.strerror})") from error
        return b"".join(parts)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class MemorySource:
    def __init__(self, data: bytes, name: str = "memory") -> None:
        self._data = data
        self.size = len(data)
        self.name = name

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length] if offset >= 0 else b""

    def close(self) -> None:
        """Do nothing: there is no resource to free."""


class SourceRange:
    """A range of another place: `size` bytes from `base` on, without a descriptor of its own."""

    def __init__(self, whole: ByteSource, base: int, size: int, name: str = "") -> None:
        self.whole = whole
        self.base = base
        self.size = size
        self.name = name or whole.name

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0:
            return b""
        return self.whole.read(self.base + offset, max(0, min(length, self.size - offset)))

    def close(self) -> None:
        """Do nothing: the owner closes the whole place."""


def as_much(place: ByteSource, offset: int, length: int) -> bytes:
    """Return up to `length` bytes from `offset`, fewer before the end or an unreadable part of the disk.

    Raises Unreadable if not even one byte can be read.
    """
    while True:
        try:
            return place.read(offset, length)
        except Unreadable:
            length //= 2
            if not length:
                raise


def chunks(place: ByteSource, start: int = 0, end: int | None = None, size: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` in pieces of at most `size`."""
    end = place.size if end is None else end
    while start < end:
        piece = as_much(place, start, min(size, end - start))
        if not piece:
            return
        yield piece
        start += len(piece)


def lines_in(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the lines of bytes that come in pieces, each cut off after `longest` bytes."""
    rest = bytearray()
    for piece in pieces:
        first, *more = piece.split(b"\n")
        rest += first[: longest - len(rest)]
        for line in more:
            yield bytes(rest)
            rest = bytearray(line[:longest])
    yield bytes(rest)


def hash_place(place: ByteSource) -> str:
    """Return the SHA-256 of all bytes of a place, as "sha256:…"."""
    value = hashlib.sha256()
    for piece in chunks(place):
        value.update(piece)
    return "sha256:" + value.hexdigest()


class Reader:
    """A seekable file object over a place, for libraries that need one (zipfile, parsers)."""

    def __init__(self, place: ByteSource) -> None:
        self._place = place
        self._at = 0

    def read(self, size: int | None = -1) -> bytes:
        """Read like `io.RawIOBase.read`."""
        if size is None or size < 0:
            size = self._place.size - self._at
        data = self._place.read(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek like `io.IOBase.seek`."""
        self._at = offset + (0, self._at, self._place.size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the position, like `io.IOBase.tell`."""
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
