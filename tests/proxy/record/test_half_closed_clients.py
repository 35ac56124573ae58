"""Ends of connections: of clients that shut their side, and of origins."""

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy.connection import Client

from stillweb.proxy.record.mitmproxy_compat import lifetime
from stillweb.snapshots.writer import Writer
from tests.proxy.gateways import drained
from tests.proxy.lab import Lab, gate
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, until

ASK = b"GET http://plain.example%b HTTP/1.1\r\nHost: plain.example\r\n\r\n"


@pytest.mark.slow
def test_it_gets_all_its_answers_and_then_the_end(lab: Lab, tmp_path: Path) -> None:
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(ASK % b"/slow" + ASK % b"/next")
            assert until(lambda: recorder.stats.under_way)
            peer.shutdown(socket.SHUT_WR)
            assert not until(lambda: recorder.stats.aborted, 3 * lifetime.LOOK_SECONDS)
            gate.open.set()
            answer = drained(peer)
        assert recorder.wait_quiet(seconds=0, timeout=HANG)
        assert (recorder.stats.aborted, recorder.failures) == (0, [])
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.endswith(b"you asked for /next")
    assert [len(r.body) for r in recorded(tmp_path / "s")] == [4, 19]


def test_so_it_does_over_tls(lab: Lab, tmp_path: Path) -> None:
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(b"CONNECT demo.example:443 HTTP/1.1\r\n\r\n")
            while not peer.recv(1 << 16).endswith(b"\r\n\r\n"):
                pass
            context = ssl.create_default_context(cafile=recorder.ca_path)
            with context.wrap_socket(peer, server_hostname="demo.example") as safe:
                safe.sendall(b"GET /slow HTTP/1.1\r\nHost: demo.example\r\n\r\n")
                assert until(lambda: recorder.stats.under_way)
                with socket.socket(fileno=os.dup(safe.fileno())) as under:
                    under.shutdown(socket.SHUT_WR)
                gate.open.set()
                assert drained(safe).endswith(b"late\r\n0\r\n\r\n")
        assert recorder.failures == []


def test_one_that_leaves_after_that_is_counted(lab: Lab, tmp_path: Path) -> None:
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(ASK % b"/slow")
            assert until(lambda: recorder.stats.under_way)
            peer.shutdown(socket.SHUT_WR)
        assert until(lambda: recorder.stats.aborted == 1)
        gate.open.set()
        assert (recorder.stats.under_way, recorder.failures) == (0, [])
    assert recorded(tmp_path / "s") == []


def test_an_origin_that_fails_it_is_told(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(ASK % b"/cut-short")
            peer.shutdown(socket.SHUT_WR)
            assert drained(peer).startswith(b"HTTP/1.1 502 ")
        assert until(lambda: recorder.failures)
        assert recorder.stats.aborted == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_the_system_knows(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        peer = socket.create_connection(server.getsockname()[:2])
        own, name = server.accept()
        with own:
            client = Client(peername=name, sockname=own.getsockname(), timestamp_start=0)
            assert lifetime.is_connected(client)
            peer.shutdown(socket.SHUT_WR)
            assert lifetime.is_connected(client)
            peer.close()
            assert not lifetime.is_connected(client)


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
