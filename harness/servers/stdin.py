"""Read standard input line by line on a daemon thread.

A read of standard input can't be interrupted. A server that reads on a worker thread of its event loop would not end
before its client does, whatever signal comes. A daemon thread ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from typing import Self

_PIECE = 65536
_AHEAD = 256  # most lines read ahead


class Lines:
    """Async iterator of a descriptor's lines with their ends; invalid UTF-8 is replaced, as in the SDK."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._read, name="stillweb-stdin", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)  # a later __anext__ must end, too
            raise StopAsyncIteration
        self._room.release()
        return line.decode("utf-8", "replace")

    def _read(self) -> None:
        rest: list[bytes] = []
        with contextlib.suppress(OSError):  # the terminal was closed
            while piece := self._piece():
                first, *others = piece.split(b"\n")
                rest.append(first)
                for other in others:
                    self._room.acquire()
                    self._tell(b"".join((*rest, b"\n")))
                    rest = [other]
        if last := b"".join(rest):
            self._tell(last)
        self._tell(None)

    def _piece(self) -> bytes:
        """Read the next bytes; b"" at the end."""
        while True:
            try:
                # not sys.stdin's buffer: the interpreter would wait for its lock when it ends
                return os.read(self._descriptor, _PIECE)
            except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                select.select([self._descriptor], [], [])

    def _tell(self, line: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
