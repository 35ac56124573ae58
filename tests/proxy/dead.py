"""Places that give no answer, each in its own way."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

UNKNOWN = "no-such-name.invalid"


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens, and which nobody else gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def resetting(after: float = 0.0) -> Iterator[int]:
    """A port whose server hears a request and breaks the connection off, `after` so many seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:  # it is closed
                    return
                with peer:
                    peer.recv(65536)
                    time.sleep(after)
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def mute() -> Iterator[int]:
    """A port that takes each connection, and says nothing in any."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes no connection and refuses none: the queue of who waits for its server is full (Linux)."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]
