"""Clients can tell a whole body from a broken one where its end is that of the connection."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
PAGE = b"<p>some of a page"
BROKEN = struct.pack("ii", 1, 0)
RECEIVE_ERROR = 56  # of curl


@contextlib.contextmanager
def origin(lab: Lab, *, secure: bool, breaks: bool) -> Iterator[int]:
    """The port of one that answers once, and then ends or breaks its connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            if secure:
                context = lab.ca.context_for("open.example", ("http/1.1",))
                connection = context.wrap_socket(connection, server_side=True)
            with connection:
                connection.recv(65536)
                connection.sendall(HEAD + PAGE)
                came.wait(HANG)
                if breaks:  # closing sends a reset
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BROKEN)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(HANG)


came = threading.Event()  # what the origin sent has reached the client


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_body_that_breaks_off_with_its_connection_does_so_for_the_client(
    lab: Lab, tmp_path: Path, scheme: str
) -> None:
    came.clear()
    with (
        Writer.open(tmp_path / "s") as writer,
        origin(lab, secure=scheme == "https", breaks=True) as port,
        lab.recorder(writer, resolve={"open.example": ("127.0.0.1", port)}) as recorder,
    ):
        ways = ["--proxy", recorder.url, "--cacert", str(recorder.ca_path)]
        command = ["curl", "--silent", "--no-buffer", *ways, f"{scheme}://open.example/"]
        # Python's own TLS takes a reset for an end
        with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
            assert curl.stdout is not None
            assert curl.stdout.read(len(PAGE)) == PAGE
            came.set()
            assert curl.wait(HANG) == RECEIVE_ERROR
        assert until(lambda: recorder.stats.failures == 1)
    assert recorded(tmp_path / "s") == []


def test_a_body_that_ends_with_its_connection_is_whole_for_clients_that_insist_on_a_goodbye(
    lab: Lab, tmp_path: Path
) -> None:
    came.set()
    with (
        Writer.open(tmp_path / "s") as writer,
        origin(lab, secure=True, breaks=False) as port,
        lab.recorder(writer, resolve={"open.example": ("127.0.0.1", port)}) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as plain,
    ):
        plain.sendall(b"CONNECT open.example:443 HTTP/1.1\r\n\r\n")
        assert plain.recv(65536).startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cafile=recorder.ca_path)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # which older Pythons set
        with context.wrap_socket(plain, server_hostname="open.example", suppress_ragged_eofs=False) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: open.example\r\n\r\n")
            got = b"".join(iter(lambda: client.recv(65536), b""))
    assert got.endswith(PAGE)
    assert [one.body for one in recorded(tmp_path / "s")] == [PAGE]
