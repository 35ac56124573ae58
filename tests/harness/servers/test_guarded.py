"""Requests that every server of ours refuses: the gateway's pages, reviews, MCP over HTTP, a program's tools, the demo's site."""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from stillweb.harness.demo import site as demo
from stillweb.harness.servers import guarded
from stillweb.harness.servers.guarded import RequestGuard, server_config
from stillweb.harness.servers.mcp import PATH, make_app
from stillweb.harness.tools import Toolset
from stillweb.harness.view.export import status_page
from stillweb.harness.view.server import ViewServer
from stillweb.harness.view.site import Site
from stillweb.proxy.net.addresses import listen
from stillweb.proxy.replay import connection
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import make_site
from tests.support.runs import make_run
from tests.support.waiting import HANG

TOKEN = "a-token-of-a-test"
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
).encode()
JSON_ACCEPTED = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"


class Server(NamedTuple):
    """Running server: its port, and a request that it answers, without Host."""

    port: int
    good: bytes
    body: bytes = b""


def posted(path: str, body: bytes, fields: bytes = JSON_ACCEPTED) -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n" % (path.encode(), fields, len(body))


@contextlib.contextmanager
def serving(app: Any, **more: Any) -> Iterator[int]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, **more))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    path = tmp_path_factory.mktemp("guarded") / "site"
    with make_site(path):
        pass
    with Snapshot.open(path) as snapshot:
        yield snapshot


@contextlib.contextmanager
def gateway(frozen: Snapshot, folder: Path) -> Iterator[Server]:
    with Gateway(frozen, draw=status_page) as it:
        yield Server(it.port, b"GET / HTTP/1.1\r\nAccept: text/html\r\n")


@contextlib.contextmanager
def review(frozen: Snapshot, folder: Path) -> Iterator[Server]:
    with ViewServer(Site([make_run(folder, ["wrong"]).path])) as it:
        yield Server(int(re.findall(r"\d+", it.url)[-1]), b"GET / HTTP/1.1\r\n")


@contextlib.contextmanager
def tools(frozen: Snapshot, folder: Path) -> Iterator[Server]:
    with serving(make_app(Toolset(frozen, ["fetch"]), TOKEN), lifespan="on") as port:
        yield Server(port, posted(f"{PATH}?token={TOKEN}", HELLO), HELLO)


@contextlib.contextmanager
def desk(frozen: Snapshot, folder: Path) -> Iterator[Server]:
    with serving(RequestGuard(demo.app, names=("desk.example",), pages=False)) as port:
        yield Server(port, b"GET / HTTP/1.1\r\n")


@pytest.fixture(scope="module")
def running(frozen: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with contextlib.ExitStack() as stack:
        made: dict[str, Callable[..., Any]] = {
            "gateway": gateway,
            "review": review,
            "tools": tools,
            "desk": desk,
        }
        yield {
            name: stack.enter_context(make(frozen, tmp_path_factory.mktemp(name)))
            for name, make in made.items()
        }


@pytest.fixture
def server(running: dict[str, Server], request: pytest.FixtureRequest) -> Server:
    return running[request.param]


every_server = pytest.mark.parametrize("server", ["gateway", "review", "tools", "desk"], indirect=True)
every_page = pytest.mark.parametrize("server", ["gateway", "review", "tools"], indirect=True)


def said(port: int, *pieces: bytes, patience: float = HANG) -> bytes:
    """All that comes back until the server closes, or says no more for a while."""
    out = b""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as sock:
        with contextlib.suppress(ConnectionError):  # it may answer and close before it is sent all
            for piece in pieces:
                sock.sendall(piece)
        try:
            while piece := sock.recv(1 << 16):
                out += piece
                if b"\r\n\r\n" in out:
                    sock.settimeout(0.2)
        except (ConnectionError, TimeoutError):
            pass
    return out


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def ask(server: Server, fields: bytes) -> int:
    return status(said(server.port, server.good + fields + b"Connection: close\r\n\r\n" + server.body))


@every_server
def test_only_this_machine_is_answered(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """A page whose name leads here (DNS rebinding) reads nothing, and one of another site asks for nothing."""
    port = str(server.port).encode()
    near = b"Host: 127.0.0.1:" + port + b"\r\n"
    for host in (
        b"127.0.0.1:" + port,
        b"localhost:" + port,
        b"[::1]:" + port,
        b"127.0.0.1",
        b"192.168.7.7:" + port,
    ):
        assert ask(server, b"Host: " + host + b"\r\n") == 200, host
    hosts = [b"evil.test:" + port, b"127.evil.test:" + port, b"127.0.0.1.nip.example:" + port]
    hosts += [
        b"localhost, evil.test",
        b"localhost:80:evil.test",
        b"localhost@evil.test",
        b"evil.test.:" + port,
        b"[::1%25evil.test]:" + port,
        b"",
        b"localhost.evil.test:" + port,
        b"stillweb.local:" + port,
        b"a/b",
        b"[::1",
        b"\xe9:" + port,
        b"1.2:99999999",
    ]
    for host in hosts:
        assert ask(server, b"Host: " + host + b"\r\n") in (400, 403), host
    for origin in (
        b"http://evil.test",
        b"https://evil.test:" + port,
        b"null",
        b"\xe9",
        b"http://127.0.0.1@evil.test",
        b"",
    ):
        assert ask(server, near + b"Origin: " + origin + b"\r\n") == 403, origin
    assert ask(server, near + b"Origin: http://127.0.0.1:" + port + b"\r\n") == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        (b"Accept: application/json, text/event-stream\r\n", 200),
        (b"Accept: */*\r\n", 200),
        (b"Accept: Application/*; q=0.5, text/*\r\n", 200),
        (b"", 200),
        (b"Accept: text/html\r\n", 406),
        (b"Accept: application/json;q=0, text/html\r\n", 406),
    ],
)
def test_mcp_answers_with_or_without_a_slash_and_whatever_is_accepted(
    running: dict[str, Server], path: str, accept: bytes, answer: int
) -> None:
    """Many clients follow no redirect of a POST, and send the Accept of their library."""
    port = running["tools"].port
    fields = b"Content-Type: application/json\r\n" + accept
    near = b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n"
    assert status(said(port, posted(f"{path}?token={TOKEN}", HELLO, fields) + near + HELLO)) == answer
    assert status(said(port, posted(f"{path}?token=wrong", HELLO, fields) + near + HELLO)) == 401


def test_a_recorded_site_is_still_asked_for_by_its_name(frozen: Snapshot, tmp_path: Path) -> None:
    """Host is the recorded one there, and scripts of its pages send their Origin."""
    with gateway(frozen, tmp_path) as server:
        asked = (
            b"GET http://%b/ HTTP/1.1\r\nHost: %b\r\nOrigin: https://other.test\r\nConnection: close\r\n\r\n"
        )
        assert status(said(server.port, asked % (b"unheard.test", b"unheard.test"))) == 504
        assert (
            status(
                said(
                    server.port,
                    asked.replace(b"Origin: https://other.test\r\n", b"") % ((b"stillweb.local",) * 2),
                )
            )
            == 200
        )
        assert status(said(server.port, asked % ((b"stillweb.local",) * 2))) == 403
        assert (
            status(
                said(
                    server.port,
                    asked.replace(b"Origin: https://other.test\r\n", b"") % (b"stillweb.local", b"evil.test"),
                )
            )
            == 403
        )
        assert (
            status(
                said(
                    server.port,
                    b"GET /ledger HTTP/1.1\r\nHost: evil.test:%d\r\nConnection: close\r\n\r\n" % server.port,
                )
            )
            == 403
        )


@every_page
def test_no_page_of_ours_is_framed_or_taken_for_another_type(server: Server) -> None:
    for path in (None, b"/ca.pem", b"/nowhere"):
        good = server.good if path is None else b"GET %b HTTP/1.1\r\n" % path
        text = said(server.port, good + b"Host: localhost\r\nConnection: close\r\n\r\n" + server.body)
        head = text.partition(b"\r\n\r\n")[0].decode().lower()
        assert "frame-ancestors 'none'" in head
        assert "default-src 'none'" in head
        assert "\r\nx-frame-options: deny" in head
        assert "\r\nx-content-type-options: nosniff" in head


BROKEN = {
    "no CR in the first line": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "no CR in later lines": b"GET / HTTP/1.1\r\nHost: localhost\n\n",
    "no CR at the end": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
    "CR alone": b"GET / HTTP/1.1\rHost: localhost\r\r",
    "CR alone in later lines": b"GET / HTTP/1.1\r\nHost: localhost\r\r",
    "no request": b"\x00\xff\xfe nonsense\r\n\r\n",
    "many fields": b"GET / HTTP/1.1\r\n" + b"X-A: y\r\n" * 40_000,
    "a long field": b"GET / HTTP/1.1\r\nX-A: " + b"y" * 300_000,
    "a long target": b"GET /" + b"a" * 300_000,
    "odd chunks": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    "no CR in chunks": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\n\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "no number": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a huge number": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "a folded host": b"GET / HTTP/1.1\r\nHost: localhost\r\n .evil.test\r\n\r\n",
    "a field name with a space": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a length with a sign": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +4\r\n\r\nabcd",
    "an endless chunk size": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"f" * 5000
    + b"\r\n",
    "endless words of a chunk": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;"
    + b"x" * 300_000,
    "HTTP/2 without TLS": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "another version": b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n",
    "credentials that are no ASCII": b"GET / HTTP/1.1\r\nHost: localhost\r\nProxy-Authorization: Basic \xc3\x9f\r\nAuthorization: Basic \xc3\x9f\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n",
}


@every_server
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_no_request_is_refused_or_answered_at_once(
    server: Server, data: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (guarded, connection):
        monkeypatch.setattr(module, "PATIENCE", 10 * HANG)  # with which it would wait for the rest
    begin = time.monotonic()
    answer = said(server.port, data)
    assert time.monotonic() - begin < HANG
    assert not answer or 200 <= status(answer) <= 505
    assert ask(server, b"Host: localhost\r\n") == 200
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "Exception" not in err


def test_a_token_is_needed_where_calls_write(frozen: Snapshot, tmp_path: Path) -> None:
    with tools(frozen, tmp_path) as server:

        def call(path: str, fields: bytes = b"") -> int:
            return ask(Server(server.port, posted(path, HELLO) + fields, HELLO), b"Host: localhost\r\n")

        assert call(PATH) == 401
        for token in ("", "x", "%C3%A9", "%ED%B3%A9", TOKEN[:-1], f"{TOKEN}x", "a" * 60_000):
            assert call(f"{PATH}?token={token}") == 401, token
        for given in (b"\xe9", b"\xff" * 100, b"Bearer", b"Basic " + TOKEN.encode(), b"Bearer \xc3\xa9"):
            assert call(PATH, b"Authorization: " + given + b"\r\n") == 401, given
        assert call(PATH, b"Authorization: Bearer " + TOKEN.encode() + b"\r\n") == 200


@pytest.mark.parametrize("token", ["", "é", "\udc80", "x" * 50_000])
def test_a_review_with_another_token_is_refused(token: str, frozen: Snapshot, tmp_path: Path) -> None:
    from urllib.parse import quote

    body = b"task=wrong&attempt=1&token=" + quote(token.encode("utf-8", "surrogatepass")).encode()
    form = b"Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://localhost\r\n"
    with review(frozen, tmp_path) as server:
        assert ask(Server(server.port, posted("/review", body, form), body), b"Host: localhost\r\n") == 403


@pytest.mark.parametrize("server", ["review", "tools", "desk"], indirect=True)
def test_what_is_too_much_is_refused(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "PATIENCE", 10 * HANG)  # with which it would wait for the rest
    path = server.good.split()[1].decode() if server.body else "/api/generation"
    for deep in (
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b"[" * 99_000,
        b"9" * 100_000,
        b'{"a": -' + b"1" * 5_000 + b"}",
        b'{"a": "\xff\xfe"}',
        b'{"a": "\\ud800"}',
        b'{"a": NaN}',
        ("[" * 40_000 + "]" * 40_000).encode("utf-16"),
    ):
        assert ask(Server(server.port, posted(path, deep), deep), b"Host: localhost\r\n") in (400, 403, 413)
    chunked = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    assert status(said(server.port, chunked, *[piece] * 6)) == 413  # without an end
    told = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" % path.encode()
    assert status(said(server.port, told)) == 413
    assert ask(server, b"Host: localhost\r\n") == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /review HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_does_not_get_on_is_ended(
    data: bytes, again: bool, frozen: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slowloris: a connection that sends a byte now and then holds nothing for long. `again`: on one used before."""
    monkeypatch.setattr(guarded, "PATIENCE", 0.5)
    if again and not data:
        pytest.skip("a connection may rest between requests")
    with (
        review(frozen, tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.port), HANG) as sock,
    ):
        if again:
            sock.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 40" in sock.recv(1 << 16)
        sock.sendall(data)
        with contextlib.suppress(ConnectionError):
            while sock.recv(1 << 16):
                pass
