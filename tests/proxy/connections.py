"""A listener of connections, each served on a thread of its own."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from tests.support.waiting import HANG


@contextlib.contextmanager
def served(serve: Callable[[int, socket.socket], None]) -> Iterator[int]:
    """The port at which `serve(number, connection)` is called for each connection; all have ended afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(number, connection), daemon=True)
            threads.append(thread)
            thread.start()
            number += 1

    threads.append(threading.Thread(target=accept, daemon=True))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(HANG)
