"""A connection that is TLS with the proxy itself, where several processes serve: the one that accepts keeps the TLS.

The others get the end of a pair of sockets, as if it were the client's, with what is inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from stillweb.proxy.serving.entrance import Sealed
from stillweb.proxy.serving.hub import Hub


class _Pipe(asyncio.Protocol):
    """One end: what comes in goes out at the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Pipe | None = None

    def _beyond(self) -> asyncio.Transport | None:
        return self.other.transport if self.other is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.transport = None
        if (beyond := self._beyond()) is not None:
            beyond.close()
        self.other = None

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if (beyond := self._beyond()) is not None:
            beyond.write(data)

    def eof_received(self) -> bool:
        """See asyncio.Protocol."""
        if (beyond := self._beyond()) is None:
            return False
        if beyond.can_write_eof():
            with contextlib.suppress(OSError):  # it is gone
                beyond.write_eof()
        else:
            beyond.close()
        return True

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        if (beyond := self._beyond()) is not None:
            beyond.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        if (beyond := self._beyond()) is not None:
            beyond.resume_reading()


async def bridge(
    hub: Hub, client: socket.socket, data: bytes, failed: Callable[[str], None]
) -> socket.socket:
    """The socket that has what is inside the TLS of a client's connection, of which `data` was read already.

    `failed` hears why there is no TLS. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    try:
        for sock in (near, far):
            sock.setblocking(False)
        outside, inside = _Pipe(), _Pipe()
        outside.other, inside.other = inside, outside
        await loop.connect_accepted_socket(lambda: inside, near)
        await loop.connect_accepted_socket(lambda: Sealed(hub, outside, data, failed), client)
    except BaseException:
        near.close()
        far.close()
        raise
    return far
