"""The writing half of a client connection: bytes, through TLS if used, and replies.

Input is read in `stillweb.proxy.replay.arrivals` and handled in `stillweb.proxy.replay.connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stillweb.proxy.replay.http1 import CHUNKED, Message
from stillweb.proxy.replay.replies import Held, Reply
from stillweb.proxy.replay.tls import ServerTls
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.proxy.replay.hub import Hub


class Channel(asyncio.Protocol):
    """The writing half of an accepted connection. All methods run on the gateway's event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.deadline = 0.0  # 0: no deadline
        self._tls: ServerTls | None = None
        self._calm: ServerTls | None = None  # the same while the connection is idle and speaks HTTP/1.1
        self._transport: asyncio.Transport | None = None
        self._busy: asyncio.Task[None] | None = None
        self._paused = False
        self._resumed: asyncio.Event | None = None
        self._left = 0  # unsent bytes at the last check
        self._closing = False
        self._eof = False
        self._holding = False  # the reply is withheld: the client is expected to leave, or polls for news

    def _requests(self, raw: bytes | None = None) -> None:
        """Answer the complete requests. `raw` holds all bytes, if they are expected to be one request."""
        raise NotImplementedError

    # Bytes

    def write(self, data: bytes) -> None:
        """Send bytes, encrypted if the tunnel uses TLS."""
        if self._transport is None:
            return
        if self._tls is not None:
            data = self._tls.encrypt(data)
        self._transport.write(data)

    async def writable(self) -> None:
        """Wait until more may be written."""
        while self._paused and self._resumed is not None:
            await self._resumed.wait()

    @property
    def paused(self) -> bool:
        """Return True if the client reads too slowly."""
        return self._paused

    def _unsent(self) -> int:
        """Return the number of bytes that are written but not sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _gets_on(self) -> bool:
        """Return True if a slow client has read anything since the last call."""
        before, self._left = self._left, self._unsent()
        return self._left != before

    def close(self) -> None:
        """Close the connection after sending what has been written."""
        self._closing = True
        self._calm = None
        if self._transport is not None:
            if self._tls is not None and (last := self._tls.close()):
                self._transport.write(last)
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once, so that the client sees a truncated answer."""
        self._closing = True
        self._calm = None
        if self._transport is not None:
            self._transport.abort()

    def _stop_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _start_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    # Answers

    def _send(self, reply: Reply, message: Message, *, within: bool = False) -> None:
        """Send a reply. Large and held replies are sent by a task.

        `within` is true if the caller is such a task already.
        """
        if reply.held is not None:
            self._holding = True
            self._work(self._hold(reply.held, message))
            return
        keep = message.keep_alive and not self._eof
        extra = (
            b""
            if keep and not message.http10
            else b"Connection: keep-alive\r\n"
            if keep
            else b"Connection: close\r\n"
        )
        if reply.pieces is None:
            self.write(reply.framed(extra, http10=message.http10))
            if not keep:
                self.close()
            return
        chunked = (reply.length is None or bool(reply.trailers)) and not message.http10
        if chunked:
            extra += CHUNKED
        elif reply.length is None or reply.trailers:
            keep, extra = False, b"Connection: close\r\n"
        self.write(b"".join((reply.wire_head, extra, b"\r\n")))
        stream = self._stream(reply, reply.pieces(), chunked, keep)
        if within:
            self._busy = None
        self._work(stream)

    async def _hold(self, held: Held, message: Message) -> None:
        if held.said:
            self.write(held.said)
        await held.over()
        self._holding = False
        late = held.late()
        if late is None:
            self.abort()
        else:
            self._send(late, message, within=True)

    def _work(self, coroutine: object) -> None:
        """Run a coroutine as the connection's task. Further requests wait until it is done."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type]
        self._busy = task
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._busy is not task:
            return
        self._busy = None
        if task.cancelled() or self._transport is None:
            return
        if task.exception() is not None:
            self.hub.failed(task.exception())
            self.abort()
            return
        if not self._paused and not self._closing:
            self._start_reading()
            self._requests()
            if self._eof and self._busy is None:
                self.close()

    async def _stream(self, reply: Reply, pieces: Iterator[bytes], chunked: bool, keep: bool) -> None:
        sent, length = 0, reply.length
        try:
            while (piece := await self.hub.next_piece(pieces)) is not None:
                await self.writable()
                sent += len(piece)
                self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if length is not None and sent != length:
                raise ValueError(f"a body of {counted(length, 'byte')} ended after {sent}")
        except (StillwebError, ValueError, OSError) as error:
            self.hub.failed(error)
            if reply.broke is not None:
                reply.broke(error, sent)
            self.abort()
            return
        if chunked:
            self.write(reply.last_chunk())
        if not keep:
            self.close()
