"""Bytes that can be read at any offset: a local file, a stored zip entry, a remote object, memory.

A `Place` is read with `read(offset, length)`. Reading is safe from many threads and after a fork: local
files are read with `os.pread`, so that no file position is shared.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from stillweb.snapshots.errors import DamagedInput, MissingCapability

CHUNK = 1 << 20

DISK = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)  # of a disk, or one of a network, that fails


class Place(Protocol):
    """Random access to `size` bytes. `name` is for messages."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer only at the end."""

    def close(self) -> None:
        """Frees what is held; closing twice does nothing."""


class Unreadable(DamagedInput):
    """The disk does not give back what a file holds."""


class FilePlace:
    """A local file, or `size` bytes of it from `base` on (an entry of a zip)."""

    def __init__(
        self, path: str | os.PathLike[str], *, base: int = 0, size: int | None = None, name: str = ""
    ) -> None:
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
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
        """The descriptor, for mmap."""
        return self._fd

    def read(self, offset: int, length: int) -> bytes:
        """See `Place.read`."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        try:
            data = os.pread(self._fd, length, self.base + offset)
            if len(data) == length or not data:
                return data
            parts = [data]  # the system may hand out less than asked for, above 2 GB for instance
            have = len(data)
            while have < length and (data := os.pread(self._fd, length - have, self.base + offset + have)):
                parts.append(data)
                have += len(data)
        except OSError as error:
            if error.errno not in DISK:
                raise
            raise Unreadable(f"{self.name}: offset {offset}: can't be read ({error.strerror})") from error
        return b"".join(parts)

    def close(self) -> None:
        """See `Place.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class BytesPlace:
    """Bytes in memory."""

    def __init__(self, data: bytes, name: str = "memory") -> None:
        self._data = data
        self.size = len(data)
        self.name = name

    def read(self, offset: int, length: int) -> bytes:
        """See `Place.read`."""
        return self._data[offset : offset + length]

    def close(self) -> None:
        """See `Place.close`."""


class RemotePlace:
    """An object behind an fsspec file system, read by ranges; `base` and `size` as for `FilePlace`."""

    def __init__(self, fs: Any, path: str, *, base: int = 0, size: int | None = None, name: str = "") -> None:
        self._fs = fs
        self._path = path
        self.base = base
        if size is None:
            try:
                size = int(fs.info(path)["size"])
            except (OSError, KeyError, TypeError) as error:
                raise DamagedInput(f"{name or path}: can't be opened: {error}") from error
        self.size = size
        self.name = name or path

    def read(self, offset: int, length: int) -> bytes:
        """See `Place.read`."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        start = self.base + offset
        return bytes(self._fs.cat_file(self._path, start=start, end=start + length))

    def close(self) -> None:
        """See `Place.close`."""


class Part:
    """`size` bytes of another place from `base` on, without a descriptor of its own."""

    def __init__(self, whole: Place, base: int, size: int, name: str = "") -> None:
        self.whole = whole
        self.base = base
        self.size = size
        self.name = name or whole.name

    def read(self, offset: int, length: int) -> bytes:
        """See `Place.read`."""
        return self.whole.read(self.base + offset, max(0, min(length, self.size - offset)))

    def close(self) -> None:
        """Leaves the whole open; its owner closes it."""


def as_much(place: Place, offset: int, length: int) -> bytes:
    """At most `length` bytes from `offset`: fewer at the end, and before what the disk doesn't give. Raises Unreadable there."""
    while True:
        try:
            return place.read(offset, length)
        except Unreadable:
            length //= 2
            if not length:
                raise


def chunks(place: Place, start: int = 0, end: int | None = None, size: int = CHUNK) -> Iterator[bytes]:
    """The bytes from `start` to `end` in pieces of at most `size`."""
    end = place.size if end is None else end
    while start < end:
        piece = as_much(place, start, min(size, end - start))
        if not piece:
            return
        yield piece
        start += len(piece)


def lines_in(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the lines of bytes that come in pieces, of a line that is too long its first `longest` bytes."""
    rest = bytearray()
    for piece in pieces:
        first, *more = piece.split(b"\n")
        rest += first[: longest - len(rest)]
        for line in more:
            yield bytes(rest)
            rest = bytearray(line[:longest])
    yield bytes(rest)


def hash_place(place: Place) -> str:
    """ "sha256:…" of all bytes of a place."""
    value = hashlib.sha256()
    for piece in chunks(place):
        value.update(piece)
    return "sha256:" + value.hexdigest()


class Reader:
    """A seekable file object over a place, for libraries that want one (zipfile, parsers)."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._at = 0

    def read(self, size: int | None = -1) -> bytes:
        """As `io.RawIOBase.read`."""
        if size is None or size < 0:
            size = self._place.size - self._at
        data = self._place.read(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """As `io.IOBase.seek`."""
        self._at = offset + (0, self._at, self._place.size)[whence]
        return self._at

    def tell(self) -> int:
        """As `io.IOBase.tell`."""
        return self._at

    def seekable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False
