"""An answer that is whole before its request is: the client has its end, and can go on."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from h2.events import StreamEnded

from stillweb.snapshots.writer import Writer
from tests.proxy.frames import Origin as H2Origin
from tests.proxy.frames import Stream, ask, speaking
from tests.proxy.gateways import drained
from tests.proxy.lab import Lab
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, until

SIZE = 3 << 20
ASK = b"POST http://early.example/ HTTP/1.1\r\nHost: early.example\r\nContent-Length: %d\r\n\r\n" % SIZE
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n%b\r\n"
END = b"GET http://early.example/next HTTP/1.1\r\nHost: early.example\r\nConnection: close\r\n\r\n"


@contextmanager
def origin(answer: bytes, *, stays: bool) -> Iterator[int]:
    """Answers as soon as it has a head; then reads on, or leaves."""

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            left = SIZE - len(peer.recv(1 << 16).partition(b"\r\n\r\n")[2])
            peer.sendall(answer)
            while stays and left and (piece := peer.recv(min(left, 1 << 16))):
                left -= len(piece)
            if stays and peer.recv(1 << 16):
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(HANG)


def test_an_origin_that_refuses_and_leaves(lab: Lab, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 413 Big\r\nConnection: close\r\n" + CHUNKS % b""
    with (
        origin(answer, stays=False) as port,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"early.example": ("127.0.0.1", port)}) as recorder,
    ):
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(ASK + b"x" * 1000)
            assert drained(peer).endswith(b"3\r\nbig\r\n0\r\n\r\n")
        assert until(lambda: recorder.stats.captures)
    (one,) = recorded(tmp_path / "s")
    assert (one.status, one.body) == (413, b"big")


@pytest.mark.parametrize("trailer", [b"", b"X-Sum: 1\r\n"])
def test_the_connection_goes_on(lab: Lab, tmp_path: Path, trailer: bytes) -> None:
    answer = b"HTTP/1.1 413 Big\r\n" + CHUNKS % trailer
    with (
        origin(answer, stays=True) as port,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"early.example": ("127.0.0.1", port)}) as recorder,
    ):
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(ASK)
            came = b""
            while not came.endswith(b"0\r\n" + trailer + b"\r\n"):  # nothing of the body is sent yet
                piece = peer.recv(1 << 16)
                assert piece
                came += piece
            peer.sendall(b"x" * SIZE + END)
            assert drained(peer).endswith(b"\r\n\r\nnext")
        recorder.wait_quiet(seconds=0, timeout=HANG)
        assert recorder.failures == []
    assert [(r.status, len(r.request_body), r.body) for r in recorded(tmp_path / "s")] == [
        (413, SIZE, b"big"),
        (200, 0, b"next"),
    ]


def test_an_origin_hears_that_no_more_of_the_request_comes(lab: Lab, tmp_path: Path) -> None:
    def answer(_: int, stream: Stream) -> None:
        stream.head()
        stream.body(b"enough")

    refusing = H2Origin(answer, lab.ca.context_for("x.test", ("h2",)))
    with (
        refusing.serving() as port,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"x.test": ("127.0.0.1", port)}) as recorder,
    ):
        with speaking(recorder) as (secure, wire):
            ask(wire, 1, "POST", "/early")
            wire.send_data(1, b"some")
            secure.sendall(wire.data_to_send())
            while not any(isinstance(e, StreamEnded) for e in wire.receive_data(secure.recv(1 << 16))):
                pass
            assert refusing.resets == []
            wire.reset_stream(1)
            secure.sendall(wire.data_to_send())
            assert until(lambda: refusing.resets == [1])
        assert until(lambda: recorder.stats.captures)
        assert len(recorder.failures) == 1
