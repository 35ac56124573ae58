"""Connections from when they are accepted until the head of their first request is there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable

from stillweb.proxy.serving.arrivals import PATIENCE
from stillweb.proxy.serving.http1 import MAX_HEAD, has_bare_break

AT_ONCE = 64  # connections accepted before anything else is looked at
# seconds without accepting, where the system gives no more sockets; and between looks at who is late
PAUSE = 1.0
PIECE = 1 << 16
TLS = 0x16  # its first byte
_WHY = b"stillweb: the request did not arrive in time\n"
LATE = (
    b"HTTP/1.1 408 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_WHY), _WHY)
)


class Reception:
    """Accepts at a listener; `decide(socket, what was read)` has each connection then, `failed` what went wrong.

    What is read ends anywhere after a head, or is no beginning of a request. What begins TLS goes to `unseal` instead,
    and may come back with what is inside by `take`. Lives on an event loop.
    """

    def __init__(
        self,
        listener: socket.socket,
        decide: Callable[[socket.socket, bytes], None],
        unseal: Callable[[socket.socket, bytes], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._listener = listener
        self._decide = decide
        self._unseal = unseal
        self._failed = failed
        # read so far, and until when it may take
        self._waiting: dict[socket.socket, tuple[bytearray, float]] = {}
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """From now on connections are accepted."""
        self._loop.add_reader(self._listener, self._accept)
        self._sweep()

    def close(self) -> None:
        """Accepts no more; who has not said what they want is sent away."""
        self._loop.remove_reader(self._listener)
        if self._later is not None:
            self._later.cancel()
        for sock in list(self._waiting):
            self._forget(sock)
            sock.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    continue  # of that client's connection
                self._failed(error)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(PAUSE, self._again)
                return
            sock.setblocking(False)
            self.take(sock)

    def take(self, sock: socket.socket) -> None:
        """A connection, of which nothing was read yet."""
        gathered = bytearray()
        if (data := _received(sock, gathered)) is not None:  # mostly it is there already
            self._done(sock, data)
        else:
            self._waiting[sock] = (gathered, time.monotonic() + PATIENCE)
            self._loop.add_reader(sock, self._more, sock)

    def _again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _more(self, sock: socket.socket) -> None:
        data = _received(sock, self._waiting[sock][0])
        if data is not None:
            self._forget(sock)
            self._done(sock, data)

    def _done(self, sock: socket.socket, data: bytes) -> None:
        if not data:
            sock.close()
        elif data[0] == TLS and sock.family != socket.AF_UNIX:  # within TLS there is no more of it
            self._unseal(sock, data)
        else:
            self._decide(sock, data)

    def _forget(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        del self._waiting[sock]

    def _sweep(self) -> None:
        now = time.monotonic()
        for sock, (gathered, end) in list(self._waiting.items()):
            if now > end:
                self._forget(sock)
                if gathered:
                    with contextlib.suppress(OSError):
                        sock.send(LATE)
                sock.close()
        self._later = self._loop.call_later(PAUSE, self._sweep)


def _received(sock: socket.socket, gathered: bytearray) -> bytes | None:
    """All that was read, when it is enough; b"" when the client has gone, None when more must come."""
    try:
        piece = sock.recv(PIECE)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
    if not piece:
        return b""
    seen = len(gathered)
    data = gathered + piece if seen else piece
    whole = data.find(b"\r\n\r\n", max(0, seen - 3)) >= 0
    if whole or len(data) > MAX_HEAD or data[0] == TLS or has_bare_break(data, max(0, seen - 1)):
        return bytes(data)
    gathered += piece
    return None
