"""Standard input line by line, without a thread that has to be waited for.

A read of standard input can't be taken back, so that a server which reads it on a worker thread of its event loop does
not end before its client does, whatever signal comes. This thread is the process's own affair: it ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Self

_PIECE = 65536
_AHEAD = 256  # lines read before they are asked for


class Lines:
    """The lines of a descriptor as text, each with its end; wrong bytes are replaced, as the SDK does."""

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
            raise StopAsyncIteration
        self._room.release()
        return line.decode("utf-8", "replace")

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):  # a terminal that has gone
            # os.read: the buffer of sys.stdin has a lock, which an interpreter that ends would wait for
            while piece := os.read(self._descriptor, _PIECE):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    self._room.acquire()
                    self._tell(line + b"\n")
        if rest:
            self._tell(rest)
        self._tell(None)

    def _tell(self, line: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
