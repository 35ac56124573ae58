"""Event loops and listening sockets, and a SIGTERM handler that writes the ledger."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import threading
import time
from types import FrameType

from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.errors import MissingCapability, UsageError

BACKLOG = 1024


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises MissingCapability (port in use) and UsageError (no such address)."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"can't listen on {host}: {error.strerror}") from error
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise MissingCapability(
                f"port {port} on {host} is in use; choose another, or 0 for any free one"
            ) from error
        raise MissingCapability(f"can't listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def flush_at_sigterm(ledger: Ledger) -> None:
    """Write the ledger before SIGTERM ends the process, unless the program handles SIGTERM itself.

    Does nothing outside the main thread, where no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def again(number: int) -> None:
        ledger.flush()  # waits for the thread that is writing
        while True:  # a signal just before the main thread begins to wait does not wake it
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    def end(number: int, _: FrameType | None) -> None:
        if not ledger.flush_if_free():  # perhaps this thread is writing: waiting would never end
            threading.Thread(target=again, args=(number,), daemon=True).start()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
