"""An origin that closes a kept connection just as it is used again: the request is sent once more, if it may be."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import httpx
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.connections import served
from tests.support.waiting import HANG

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Closing:
    """An origin whose first connection answers one request and ends with the next; later ones answer `later` each."""

    end: Callable[[socket.socket], object]
    later: int = 1000
    tls: ssl.SSLContext | None = None
    code: h2.errors.ErrorCodes = h2.errors.ErrorCodes.NO_ERROR  # with HTTP/2, instead of `end`
    got: list[tuple[int, str, str]] = field(default_factory=list)  # connection, method, path

    def serving(self) -> contextlib.AbstractContextManager[int]:
        return served(self._serve)

    def _serve(self, number: int, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self.tls is not None:
                with self.tls.wrap_socket(connection, server_side=True) as secure:
                    if secure.selected_alpn_protocol() == "h2":
                        self._http2(number, secure)
                    else:
                        self._http1(number, secure)
            else:
                self._http1(number, connection)

    def _http1(self, number: int, connection: socket.socket) -> None:
        for answered in range(1 + (self.later if number else 1)):
            data = b""
            while b"\r\n\r\n" not in data:
                if not (piece := connection.recv(65536)):
                    return
                data += piece
            method, path = data.decode().split()[:2]
            self.got.append((number, method, path))
            if answered == (self.later if number else 1):
                self.end(connection)
                return
            connection.sendall(ANSWER.removesuffix(b"ok") if method == "HEAD" else ANSWER)

    def _http2(self, number: int, connection: socket.socket) -> None:
        http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        answered = 0
        while data := connection.recv(65536):
            for event in http.receive_data(data):
                if not isinstance(event, h2.events.RequestReceived):
                    continue
                fields = dict(event.headers)
                self.got.append((number, fields[":method"], fields[":path"]))
                if answered == (self.later if number else 1):
                    http.close_connection(self.code, last_stream_id=event.stream_id - 2)
                    connection.sendall(http.data_to_send())
                    return
                http.send_headers(event.stream_id, [(":status", "200"), ("content-length", "2")])
                http.send_data(event.stream_id, b"ok", end_stream=True)
                answered += 1
            connection.sendall(http.data_to_send())


def shut(connection: socket.socket) -> None:
    """The usual end: no more data, and whoever sends gets a reset."""


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def broken_off(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 O")


def after_an_interim_answer(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")


@dataclass
class Seen:
    statuses: list[int]
    failures: list[tuple[str, str]]
    got: list[tuple[int, str, str]]
    stored: list[tuple[str, str, int]]


def seen(
    path: Path,
    origin: Closing,
    asked: list[tuple[str, str]],
    ca: Authority | None = None,
    *,
    http2: bool = False,
) -> Seen:
    """Return the answers that a client gets through a recorder, and those that are kept."""
    with (
        origin.serving() as port,
        Writer.open(path / "s") as writer,
        Recorder(
            writer,
            authority=Authority.load_or_create(path / "state"),
            upstream_ca=ca.certificate_path if ca else None,
            resolve={"x.test": ("127.0.0.1", port)},
        ) as recorder,
    ):
        trust = ssl.create_default_context(cafile=recorder.ca_path)
        with httpx.Client(
            proxy=recorder.proxy_url(), verify=trust, http2=http2, trust_env=False, timeout=HANG
        ) as client:
            base = f"http{'s' if ca else ''}://x.test"
            statuses = [
                client.request(m, base + where, content=b"body" if m in ("PUT", "POST") else None).status_code
                for m, where in asked
            ]
        assert recorder.wait_quiet(seconds=0)
        failures = list(recorder.failures)
    with Snapshot.open(path / "s") as snapshot:
        stored = [(c.method, c.url.removeprefix(base), c.status) for c in snapshot.captures()]
    return Seen(statuses, failures, origin.got, sorted(stored))


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority.load_or_create(tmp_path / "origin")


@pytest.mark.parametrize("end", [shut, reset])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_safe_request_is_sent_again_on_a_new_connection(
    method: str, end: Callable[[socket.socket], object], tmp_path: Path
) -> None:
    found = seen(tmp_path, Closing(end), [("GET", "/1"), (method, "/2"), ("GET", "/3")])
    assert (found.statuses, found.failures) == ([200, 200, 200], [])
    assert found.got == [(0, "GET", "/1"), (0, method, "/2"), (1, method, "/2"), (1, "GET", "/3")]
    assert found.stored == sorted([("GET", "/1", 200), (method, "/2", 200), ("GET", "/3", 200)])


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_so_it_is_over_tls(protocol: str, tmp_path: Path, ca: Authority) -> None:
    origin = Closing(shut, tls=ca.context_for("x.test", (protocol,)))
    found = seen(tmp_path, origin, [("GET", "/1"), ("GET", "/2"), ("GET", "/3")], ca, http2=protocol == "h2")
    assert (found.statuses, found.failures) == ([200, 200, 200], [])
    assert found.got == [(0, "GET", "/1"), (0, "GET", "/2"), (1, "GET", "/2"), (1, "GET", "/3")]
    assert found.stored == [("GET", f"/{n}", 200) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("method", "end"),
    [("POST", shut), ("PUT", shut), ("DELETE", shut), ("GET", broken_off), ("GET", after_an_interim_answer)],
)
def test_what_may_have_been_done_or_heard_is_not(
    method: str, end: Callable[[socket.socket], object], tmp_path: Path
) -> None:
    found = seen(tmp_path, Closing(end), [("GET", "/1"), (method, "/2")])
    assert found.statuses == [200, 502]
    assert [url for url, _ in found.failures] == ["http://x.test/2"]
    assert found.got == [(0, "GET", "/1"), (0, method, "/2")]
    assert found.stored == [("GET", "/1", 200)]


def test_an_origin_that_ends_a_connection_for_an_error_is_not_asked_again(
    tmp_path: Path, ca: Authority
) -> None:
    origin = Closing(shut, tls=ca.context_for("x.test", ("h2",)), code=h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
    found = seen(tmp_path, origin, [("GET", "/1"), ("GET", "/2")], ca, http2=True)
    assert found.statuses == [200, 502]
    assert found.got == [(0, "GET", "/1"), (0, "GET", "/2")]


def test_it_is_sent_again_once(tmp_path: Path) -> None:
    found = seen(tmp_path, Closing(shut, later=0), [("GET", "/1"), ("GET", "/2")])
    assert found.statuses == [200, 502]
    assert [url for url, _ in found.failures] == ["http://x.test/2"]
    assert found.got == [(0, "GET", "/1"), (0, "GET", "/2"), (1, "GET", "/2")]
