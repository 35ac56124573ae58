"""What the peer of an HTTP/2 stream does not read yet, on disk instead of in memory, while a recorder runs.

mitmproxy goes on reading for a stream whose window is closed, and keeps all of it. Not to read either would hold back what
is archived: a browser that pauses a video never asks for the rest of it.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict, deque
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection, SendH2Data

from stillweb.proxy.record.patching import Wrap, Wrapped, wrapped

MEMORY = 1 << 20  # bytes of a stream that stay in memory
PIECE = 1 << 14  # what every peer takes as a frame (RFC 9113, 4.2)


class Backlog:
    """Has of a deque of chunks what mitmproxy uses. Those from the file come in other pieces than they went in."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._first: deque[SendH2Data] = deque()
        self._size = 0  # bytes of these
        self._file: BinaryIO | None = None  # what comes behind them
        self._read = self._written = 0
        self._last: deque[SendH2Data] = deque()  # and behind that: an end, and what the disk has no room for

    def append(self, chunk: SendH2Data) -> None:
        """Puts a chunk behind all others."""
        if not (self._last or self._unread) and self._size + len(chunk.data) <= MEMORY:
            self._first.append(chunk)
            self._size += len(chunk.data)
        elif self._last or chunk.end_stream or not self._write(chunk.data):
            self._last.append(chunk)

    def appendleft(self, chunk: SendH2Data) -> None:
        """Puts back what was taken."""
        self._first.appendleft(chunk)
        self._size += len(chunk.data)

    def popleft(self) -> SendH2Data:
        """Takes the first chunk. Raises IndexError where there is none, OSError where the disk fails."""
        if self._first:
            chunk = self._first.popleft()
            self._size -= len(chunk.data)
            return chunk
        if not self._unread:
            return self._last.popleft()
        assert self._file is not None
        data = os.pread(self._file.fileno(), min(PIECE, self._unread), self._read)
        if not data:
            raise OSError("a file for what a client has not read is too short")
        self._read += len(data)
        if not self._unread:
            self._read = self._written = 0
            os.ftruncate(self._file.fileno(), 0)
        return SendH2Data(data, False)

    def __bool__(self) -> bool:
        return bool(self._first or self._unread or self._last)

    @property
    def _unread(self) -> int:
        return self._written - self._read

    def _write(self, data: bytes) -> bool:
        """Whether the disk has taken all of it."""
        left = memoryview(data)
        try:
            if self._file is None:
                made = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 -- see __del__
                self._file = cast(BinaryIO, made)
            while left:
                at = self._written + len(data) - len(left)
                left = left[os.pwrite(self._file.fileno(), left, at) :]
        except OSError:
            return False
        self._written += len(data)
        return True

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


def backlogs(directory: Path | None) -> AbstractContextManager[None]:
    """Has connections that are made while it is open keep it so, in unnamed files in `directory`."""
    return wrapped([(BufferedH2Connection, "__init__", _begin(directory))])


def _begin(directory: Path | None) -> Wrap:
    def wrap(original: Wrapped) -> Wrapped:
        def __init__(self: Any, *args: Any) -> None:
            original(self, *args)
            self.stream_buffers = defaultdict(partial(Backlog, directory))

        return __init__

    return wrap
