"""Standard input line by line, without a thread that has to be waited for.

A read of standard input can't be taken back, so that a server which reads it on a worker thread of its event loop does
not end before its client does, whatever signal comes. This thread is the process's own affair: it ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
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
            self._lines.put_nowait(None)  # it has ended for whoever asks again
            raise StopAsyncIteration
        self._room.release()
        return line.decode("utf-8", "replace")

    def _read(self) -> None:
        rest: list[bytes] = []
        with contextlib.suppress(OSError):  # a terminal that has gone
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
        """What comes next; b"" at the end."""
        while True:
            try:
                # not the buffer of sys.stdin: that has a lock, which an interpreter that ends would wait for
                return os.read(self._descriptor, _PIECE)
            except BlockingIOError:  # whoever shares the descriptor made it so
                select.select([self._descriptor], [], [])

    def _tell(self, line: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
