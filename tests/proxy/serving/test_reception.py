"""The first head of a connection: read however it comes, refused when it does not, and accepting goes on."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stillweb.proxy.serving import reception
from stillweb.proxy.serving.http1 import MAX_HEAD
from stillweb.proxy.serving.listening import listen, new_loop
from stillweb.proxy.serving.reception import Reception
from tests.proxy.gateways import drained
from tests.support.waiting import HANG, until

HEAD = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"


class Scarce(socket.socket):
    """A listener to which the system gives no more sockets, at first."""

    refusals: list[int]

    def accept(self) -> Any:
        if self.refusals:
            raise OSError(self.refusals.pop(), "none left")
        return super().accept()


def run(
    client: Callable[[int], Any], listener: socket.socket | None = None
) -> tuple[Any, list[bytes], list[str]]:
    """What a client, on a thread, got at a port; what was read of each connection; and what failed."""
    read: list[bytes] = []
    failed: list[str] = []
    own = listener or listen("127.0.0.1", 0)

    def decide(sock: socket.socket, data: bytes) -> None:
        read.append(data)
        sock.send(b"%d" % len(data))
        sock.close()

    async def serve() -> Any:
        opened = Reception(own, decide, decide, lambda error: failed.append(str(error)))
        opened.open()
        try:
            return await asyncio.to_thread(client, own.getsockname()[1])
        finally:
            opened.close()

    loop = new_loop()
    try:
        return loop.run_until_complete(serve()), read, failed
    finally:
        loop.close()
        own.close()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def send(*pieces: bytes) -> Callable[[int], bytes]:
    def client(port: int) -> bytes:
        with connected(port) as sock:
            for piece in pieces:
                sock.sendall(piece)
            return drained(sock)

    return client


@pytest.mark.parametrize(
    "pieces", [(HEAD,), tuple(HEAD[n : n + 1] for n in range(len(HEAD))), (HEAD[:-3], HEAD[-3:])]
)
def test_a_head_is_read_however_it_comes(pieces: tuple[bytes, ...]) -> None:
    assert run(send(*pieces)) == (b"%d" % len(HEAD), [HEAD], [])


def test_what_can_be_no_head_is_handed_on_at_once() -> None:
    (_, read, _) = run(send(b"\x16\x03\x01"))
    assert read == [b"\x16\x03\x01"]
    (_, (read,), _) = run(send(b"x" * (MAX_HEAD + 1)))
    assert len(read) == MAX_HEAD + 1


def test_who_hangs_up_is_forgotten() -> None:
    def client(port: int) -> bytes:
        for data in (b"", b"GET "):
            with connected(port) as sock:
                sock.sendall(data)
        return send(HEAD)(port)

    assert run(client)[1:] == ([HEAD], [])


def test_who_is_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PAUSE", 0.01)
    late: list[float] = [0.0]

    class Clock:
        monotonic = staticmethod(lambda: time.monotonic() + late[0])

    opened: list[Reception] = []
    begin = Reception.open
    monkeypatch.setattr(Reception, "open", lambda self: (opened.append(self), begin(self)))
    monkeypatch.setattr(reception, "time", Clock)

    def client(port: int) -> tuple[bytes, bytes]:
        with connected(port) as one, connected(port) as other:
            one.sendall(b"GET ")
            assert until(lambda: sorted(len(g) for g, _ in list(opened[0]._waiting.values())) == [0, 4])
            late[0] = reception.PATIENCE + 1
            return drained(one), drained(other)

    (one, other), read, failed = run(client)
    assert one.startswith(b"HTTP/1.1 408 ")
    assert one.endswith(b"did not arrive in time\n")
    assert (other, read, failed) == (b"", [], [])


def test_accepting_goes_on_when_there_are_sockets_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PAUSE", 0.01)
    listener = Scarce(socket.AF_INET, socket.SOCK_STREAM)
    listener.refusals = [errno.EMFILE, errno.ECONNABORTED, errno.EPROTO, errno.ENFILE]
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    got, read, failed = run(send(HEAD), listener)
    assert (got, read) == (b"%d" % len(HEAD), [HEAD])
    assert failed == ["[Errno 23] none left", "[Errno 24] none left"]
