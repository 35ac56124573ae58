"""Proxy that refuses every request, for libraries in C and programs that bypass the block of Python's sockets.

curl, everything built on libcurl, Node, Git and Go obey the proxy variables of the environment. While a test runs
these variables name this proxy, and each request counts as the test's attempt to reach the network.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator

from stillweb.harness.testing.blocking import Blocked, is_loopback

_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1")
_LONGEST = 65536  # most bytes of a request's head
_PATIENCE = 5.0  # seconds to wait for the head


@contextlib.contextmanager
def guarded(blocked: Blocked) -> Iterator[None]:
    """Set the proxy variables to a refusing proxy while the context is open, and NO_PROXY to the allowed hosts."""
    names = [name for upper in _VARIABLES for name in (upper, upper.lower())]
    before = {name: os.environ.get(name) for name in names}
    with _Refusing(blocked) as port:
        blocked.allowed.add(f"127.0.0.1:{port}")
        for name in names:
            os.environ[name] = f"http://127.0.0.1:{port}"
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = _direct(blocked.allowed - {f"127.0.0.1:{port}"})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _direct(allowed: set[str]) -> str:
    """Return the value of `NO_PROXY` for the allowed addresses."""
    hosts = {
        host.strip("[]")
        for one in allowed
        for host in (one, one.rpartition(":")[0])
        if host and host != "loopback"
    }
    if "loopback" in allowed or any(map(is_loopback, hosts)):
        hosts.update(_LOOPBACK)
    return ",".join(sorted(hosts))


class _Refusing:
    """Proxy on loopback that reads each request line, reports it to `blocked`, and closes the connection."""

    def __init__(self, blocked: Blocked) -> None:
        self._blocked = blocked
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._awake, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="stillweb-guard", daemon=True)
        self._asking: list[tuple[threading.Thread, socket.socket]] = []

    def __enter__(self) -> int:
        self._thread.start()
        port: int = self._listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for thread, client in self._asking:  # bytes already sent count; more are not awaited
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            thread.join()
        for one in (self._listener, self._awake, self._wake):
            one.close()

    def _listen(self) -> None:
        while self._listener in select.select([self._listener, self._awake], [], [])[0]:
            client, _ = self._listener.accept()
            # one thread for each client, so that a silent client does not block the others
            thread = threading.Thread(target=self._refuse, args=(client,), daemon=True)
            self._asking = [one for one in self._asking if one[0].is_alive()] + [(thread, client)]
            thread.start()

    def _refuse(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(_PATIENCE)
            head = b""
            while b"\n" not in head and len(head) < _LONGEST:
                piece = client.recv(4096)
                if not piece:
                    break
                head += piece
            asked = head.partition(b"\n")[0].decode("latin-1").rsplit(" ", 1)[0].strip()
            if asked:
                self._blocked.tried(f"asking for {asked.removeprefix('CONNECT ')}")
