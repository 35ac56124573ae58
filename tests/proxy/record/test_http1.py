"""HTTP/1 is read as browsers read it: heads, chunks, interim answers and trailers; what is refused is told."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest
from h11._receivebuffer import ReceiveBuffer
from mitmproxy.connection import Client
from mitmproxy.http import Headers, Request, Response
from mitmproxy.options import Options
from mitmproxy.proxy.commands import SendData
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import _events, _http1

from stillweb.proxy import Authority, Gateway, Recorder
from stillweb.proxy.record.mitmproxy_compat._patch import PATCHES, Classes
from stillweb.proxy.record.mitmproxy_compat.http1 import (
    MAX_HEAD,
    MAX_LINE,
    ChunkReader,
    Unreadable,
    normalized_head,
    readable_request,
)
from stillweb.snapshots import Snapshot, Writer
from tests.support.waiting import HANG, until

END = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal"
ANSWERS = {
    "/early": [b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n", END],
    "/both": [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + END],
    "/split": [b"HTTP/1.1 103 Early Hints\r\nLink: ", b"</a.css>\r\n\r\nHTTP/1.1 200", END[12:]],
    "/odd": [b"HTTP/1.1 200OK\nno colon\r\nX(Y): 1\r\nContent-Length: 5\r\n", b"Content-Length : 5\r\n\r\nfinal"],
    "/odd-chunks": [b"HTTP/1.1 103 E\n\nHTTP/2 200 OK\nContent-Length: 9\nTransfer-Encoding: chunked\n\n05;x\nfin", b"al\n0\n?\n\n"],
    "/trailers": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfinal\r\n0\r\nX-T: 1\r\n\r\n"],
}  # fmt: skip
WORDS = {f"/{n}": [END.replace(b" OK", said)] for n, said in enumerate((b"", b" ", b" Fine by me"))}


def talk(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def origin() -> Iterator[tuple[int, list[bytes]]]:
    """An origin of one request at a time, byte by byte as told; what it was sent."""
    got: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                data = b""
                while b"\r\n\r\n" not in data or (
                    b"chunked" in data and not data.endswith((b"0\r\n\r\n", b"1\r\n\r\n"))
                ):
                    data += connection.recv(65536)
                got.append(data)
                for piece in (ANSWERS | WORDS).get(data.split()[1].decode(), [END]):
                    connection.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], got
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_what_is_archived_is_the_answer(origin: tuple[int, list[bytes]], tmp_path: Path) -> None:
    port, got = origin
    ask = "GET http://x.test{} HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n"
    post = (
        b"POST http://x.test/post HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    )
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(
            writer,
            resolve={"x.test": ("127.0.0.1", port)},
            authority=Authority.load_or_create(tmp_path / "state"),
        ) as recorder,
    ):
        for path in ANSWERS:
            answer = talk(recorder.port, ask.format(path).encode())
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), path
            ends = {"/trailers": b"0\r\nX-T: 1\r\n\r\n", "/odd-chunks": b"\r\n0\r\n\r\n"}
            assert answer.endswith(ends.get(path, b"\r\n\r\nfinal"))
        assert talk(recorder.port, post).endswith(b"final")
        assert got[-1].endswith(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
        recorder.wait_quiet(seconds=0)
        assert recorder.failures == []
    with Snapshot.open(tmp_path / "site") as snapshot:
        found = {c.url.rpartition("/")[2]: (c.status, snapshot.read(c).body) for c in snapshot.captures()}
    assert found == {p.strip("/"): (200, b"final") for p in (*ANSWERS, "/post")}


def test_a_status_without_words_has_none_in_replay(origin: tuple[int, list[bytes]], tmp_path: Path) -> None:
    said = [b" ", b" ", b" Fine by me"]
    own = Authority.load_or_create(tmp_path / "state")
    ask = "GET http://x.test/{} HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n"
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(writer, resolve={"x.test": ("127.0.0.1", origin[0])}, authority=own) as recorder,
    ):
        for number in range(len(said)):
            assert talk(recorder.port, ask.format(number).encode()).endswith(b"final")
    with Snapshot.open(tmp_path / "site") as snapshot, Gateway(snapshot, authority=own) as gateway:
        lines = [
            talk(gateway.port, ask.format(number).encode()).partition(b"\r\n")[0]
            for number in range(len(said))
        ]
    assert lines == [b"HTTP/1.1 200" + words for words in said]


def test_what_is_no_answer_is_refused_in_words_that_quote_none_of_it(
    origin: tuple[int, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {
        "/two": (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhush", "several lengths"),
        "/cut": (b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=hush", "breaks off after"),
        "/none": (b"hush, this is no answer", "has no status line"),
        "/chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhush\r\n", "how long it is"),
    }
    for path, (data, _) in refused.items():
        monkeypatch.setitem(ANSWERS, path, [data])
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(
            writer,
            resolve={"x.test": ("127.0.0.1", origin[0])},
            authority=Authority.load_or_create(tmp_path / "state"),
        ) as recorder,
    ):
        for path in refused:
            talk(recorder.port, f"GET http://x.test{path} HTTP/1.1\r\nHost: x.test\r\n\r\n".encode())
        recorder.wait_quiet(seconds=0)
        told = {url.removeprefix("http://x.test"): why for url, why in recorder.failures}
    assert told.keys() == refused.keys()
    assert all(why in told[path] and "hush" not in told[path] for path, (_, why) in refused.items())
    with Snapshot.open(tmp_path / "site") as snapshot:
        assert list(snapshot.captures()) == []


@pytest.mark.parametrize(
    "fields",
    ["Content-Length: 0\r\nContent-Length: 0\r\n", "Content-Length: x\r\n", "Transfer-Encoding: y\r\n"],
)
def test_a_request_that_is_refused_is_a_failure(
    origin: tuple[int, list[bytes]], fields: str, tmp_path: Path
) -> None:
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        ask = f"POST http://x.test/ HTTP/1.1\r\nHost: x.test\r\n{fields}\r\n"
        assert talk(recorder.port, ask.encode()).startswith(b"HTTP/1.1 400 ")
        assert until(lambda: recorder.stats.under_way == 0)
        assert [url for url, _ in recorder.failures] == ["http://x.test/"]
        assert recorder.stats.aborted == 0
    assert origin[1] == []


@pytest.mark.parametrize(
    "head",
    [
        "GET http://x.test/ HTTP/1.1\rHost: x.test\r\r",  # it was waited for its end
        "GET http://x.test/ HTTP/1.1\r\nHost: x.test\rX-More: 1\r\n\r\n",
        "GET http://x.test/\u00fc HTTP/1.1\r\nHost: x.test\rX-More: 1\r\n\r\n",
    ],
)
def test_a_head_with_a_cr_alone_is_refused(tmp_path: Path, head: str) -> None:
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client,
    ):
        client.sendall(head.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert recorder.failures == [("client", "a request was refused: lines must end in CR LF")]


def test_trailers_without_a_place_do_not_come_behind_the_next_answer() -> None:
    client = Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0)
    changes = {patch.name for patch in PATCHES} - {"trailers"}
    server = Classes(off=changes)(_http1.Http1Server)(Context(client, Options()))
    sent = b""
    for number, field in enumerate(((b"content-length", b"2"), (b"transfer-encoding", b"chunked"))):
        server.stream_id = number
        server.request = Request.make("GET", "http://x.test/")
        head = Response.make(200, b"", Headers([field]))
        events = [_events.ResponseHeaders(number, head), _events.ResponseData(number, b"ok")]
        if number == 0:
            events.append(_events.ResponseTrailers(number, Headers([(b"x-of", b"the first")])))
        for event in [*events, _events.ResponseEndOfMessage(number)]:
            for command in server.send(event):
                sent += command.data if isinstance(command, SendData) else b""
    assert sent.endswith(b"\r\n\r\n2\r\nok\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("GET http://x.test/\u00fc?q=\u00f6 HTTP/1.1", "GET /\u00fc?q=\u00f6 HTTP/1.1"),
        ("GET http://x.test?q=1#there HTTP/1.1", "GET /?q=1 HTTP/1.1"),
        ("POST HTTP://x.test HTTP/1.0", "POST / HTTP/1.0"),
        ("GET http://u:p@x.test/a@b HTTP/1.1", "GET /a@b HTTP/1.1"),
        ("GET WS://x.test/a HTTP/1.1", "GET /a HTTP/1.1"),
    ],
)
def test_addresses_that_mitmproxy_can_not_read(line: str, own: str) -> None:
    rest = b"\r\nHost: other.test\r\nA: 1\r\n\r\nbody"
    assert readable_request(line.encode() + rest) == own.encode() + b"\r\nHost: x.test\r\nA: 1\r\n\r\nbody"
    assert readable_request(line.encode() + rest[:20]) is None


def test_a_tunnel_to_an_address_of_version_6_without_brackets() -> None:
    rest = b" HTTP/1.1\r\nHost: ::1:443\r\n\r\n"
    assert readable_request(b"CONNECT ::1:443" + rest) == b"CONNECT [::1]:443" + rest
    assert readable_request(b"CONNECT ::1:443") is None


@pytest.mark.parametrize(
    "line",
    [
        "GET http://x.test/a|b HTTP/1.1",
        "GET /\u00fc HTTP/1.1",
        "CONNECT x.test:443 HTTP/1.1",
        "CONNECT [::1]:443 HTTP/1.1",
        "nonsense",
        "",
    ],
)
def test_others_are_left_alone(line: str) -> None:
    assert readable_request(line.encode() + b"\r\nHost: x.test\r\n\r\n") is None


ODD = {
    "unescaped": ("GET http://x.test/\u00fc?q=\u00f6 HTTP/1.1\r\n", "GET /\u00fc?q=\u00f6 HTTP/1.1\r\n"),
    "user": ("GET http://u:p@x.test/a HTTP/1.1\r\n", "GET /a HTTP/1.1\r\n"),  # wget, urllib
    "lines": ("\r\n\n\r\nGET http://x.test/a HTTP/1.1\r\n", "GET /a HTTP/1.1\r\n"),
    "socket": ("GET ws://x.test/a HTTP/1.1\r\n", "GET /a HTTP/1.1\r\n"),  # aiohttp
    "path": ("GET /a HTTP/1.1\r\n", "GET /a HTTP/1.1\r\n"),  # Java, for a web socket
}


@pytest.mark.parametrize("name", ODD)
def test_odd_requests_are_asked_recorded_and_answered(
    origin: tuple[int, list[bytes]], name: str, tmp_path: Path
) -> None:
    sent, plain = ODD[name]
    ask = f"{sent}Host: x.test\r\nConnection: close\r\n\r\n".encode()
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(
            writer,
            resolve={"x.test": ("127.0.0.1", origin[0])},
            authority=Authority.load_or_create(tmp_path / "state"),
        ) as recorder,
    ):
        assert talk(recorder.port, ask).endswith(b"final")
        assert origin[1][0].startswith(plain.encode())
        recorder.wait_quiet(seconds=0)
        assert recorder.failures == []
    with (
        Snapshot.open(tmp_path / "site") as snapshot,
        Gateway(snapshot, authority=Authority.load_or_create(tmp_path / "state")) as gateway,
    ):
        assert talk(gateway.port, ask).endswith(b"final")
        assert [entry["verdict"] for entry in gateway.ledger] == ["exact"]


def test_a_request_that_does_not_say_where_it_goes_is_told(tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        assert talk(recorder.port, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert [url for url, _ in recorder.failures] == ["client"]


BODY = b"<p>x"


def told(head: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return start + b"\r\n" + head + b"\r\n" + BODY


@pytest.mark.parametrize(
    "data",
    [
        told(b"Content-Type: text/html\r\nContent-Length: 4\r\nX-Odd!: \xe4\t\r\nX-Empty:\r\n"),
        told(b"TRANSFER-ENCODING: Chunked\r\n"),
        told(b"", start=b"HTTP/1.0 404"),
        told(b"X: 1\r\n", start=b"HTTP/1.1 999 "),
        b"HTTP/1.1 200 OK\r\nContent-Length: 4",  # not all of it yet
        b"\r\nHTT",
        b"",
    ],
)
def test_what_reads_alike_everywhere_is_left_alone(data: bytes) -> None:
    assert normalized_head(data) is None


@pytest.mark.parametrize(
    ("start", "plain"),
    [
        (b"HTTP/1.1 200OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/2 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1.10 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1 200 OK", b"HTTP/1.0 200 OK"),
        (b"HTTP 0404 No", b"HTTP/1.0 404 No"),
        (b"http/1.0\t200\tFine", b"HTTP/1.0 200 Fine"),
        (b"\r\nHTTP/1.1 200", b"HTTP/1.1 200 "),
        (b"xxHTTP/1.1 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 103 Early Hints", b"HTTP/1.1 103 Early Hints"),
    ],
)
def test_status_lines(start: bytes, plain: bytes) -> None:
    assert normalized_head(told(b"A: 1\r\n", start)) == told(b"A: 1\r\n", plain)


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        (b"garbage\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"A : 1\r\nX(Y): 2\r\n\xc3\x9c: 3\r\n: 4\r\nX Y: 5\r\nB: 6\r\n", b"A: 1\r\nB: 6\r\n"),
        (b"A: 1\r\n\ttwo\r\nB:\r\n  3\r\n \r\n", b"A: 1 two\r\nB: 3\r\n"),
        (b" of nothing\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"X(Y): 1\r\n of that\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"A: 1\n", b"A: 1\r\n"),
        (b"A: 1\r2\r\n", b"A: 1 2\r\n"),
        (b"A: 1\r\nContent-Length: 4\r\nB: 2\r\ncontent-length: 4\r\n", b"A: 1\r\nContent-Length: 4\r\nB: 2\r\n"),
        (b"Content-Length: 04, 4\r\n", b"Content-Length: 4\r\n"),
        (b"Content-Length: 4.0\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"Content-Length:\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"Content-Length: 9\r\nA: 1\r\nTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\nA: 1\r\n"),
        (b"Transfer-Encoding: identity, chunked\r\nTransfer-Encoding: Chunked\r\n", b"Transfer-Encoding: chunked\r\n"),
        (b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n", b"Content-Length: 4\r\n"),
        (b"Transfer-Encoding: x-gzip , chunked\r\nContent-Length: 4\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
    ],
)  # fmt: skip
def test_fields(odd: bytes, plain: bytes) -> None:
    assert normalized_head(told(odd)) == told(plain)
    assert normalized_head(told(plain)) is None or b"gzip" in plain


def test_an_answer_without_a_body_has_no_chunks() -> None:
    start = b"HTTP/1.1 204 No"
    assert normalized_head(told(b"Transfer-Encoding: chunked\r\nA: 1\r\n", start)) == told(b"A: 1\r\n", start)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (told(b"Content-Length: 4\r\nContent-Length: 5\r\n"), "several lengths of its body: 4, 5"),
        (told(b"Content-Length: 4\r\nContent-Length: four\r\n"), "several lengths"),
        (told(b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0 200 OK"), "HTTP/1.0"),
        (told(b"Transfer-Encoding: gzip\r\nContent-Length: 4\r\n"), "transfer coding"),
        (told(b"A: \0\r\n"), "NUL"),
        (told(b"", b"HTTP/1.1"), "no status: 'HTTP/1.1'"),
        (told(b"", b"HTTP/1.1 20 OK"), "no status"),
        (told(b"", b"HTTP/1.1 1000 OK"), "no status"),
        (b"<!doctype html>", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * MAX_HEAD, "longer than"),
    ],
)
def test_what_clients_read_differently_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        normalized_head(data)


NEXT = b"HTTP/1.1 200 OK"


def read(data: bytes, step: int) -> tuple[bytes, ChunkReader, bytes]:
    """The body, the reader, and what is left behind the end."""
    reader, buffer, body = ChunkReader(), ReceiveBuffer(), b""
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        while (event := reader(buffer)) is not None:
            if isinstance(event, h11.EndOfMessage):
                return body, reader, bytes(buffer) + data[at + step :]
            body += event.data
    reader.read_eof()
    raise AssertionError("read_eof returns")


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("data", "trailers"),
    [
        (b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", ()),
        (b"3;name=value\r\nabc\r\na ; =\"x\r\n0123456789\r\n0;last\r\n\r\n", ()),
        (b"000000000000000000000003 \nabc\n0a\n0123456789\n000\n\n", ()),
        (b"d\r\nabc0123456789\r\n0\r\nX-T: 1 \r\nnonsense\r\n: no\r\nY:2\r\n\r\n", ((b"X-T", b"1"), (b"Y", b"2"))),
    ],
)  # fmt: skip
def test_as_browsers_read_it(data: bytes, trailers: tuple[tuple[bytes, bytes], ...], step: int) -> None:
    body, reader, left = read(data + NEXT, step)
    assert (body, left, reader.trailers) == (b"abc0123456789", NEXT, trailers)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"0x3\r\nabc\r\n0\r\n\r\n", "how long"),
        (b"-3\r\nabc", "how long"),
        (b" 3\r\nabc", "how long"),
        (b"\r\n", "how long"),
        (b"<p>no chunks\r\n", "how long"),
        (b"fffffffffffffffff\r\n", "how long"),
        (b"3\r\nabcd\r\n0\r\n\r\n", "longer than it says"),
        (b"3;" + b"x" * (MAX_LINE + 1), "too long"),
        (b"3\r\nabc\r\n", "incomplete"),
        (b"3\r\nabc\r\n0\r\n", "incomplete"),
        (b"5\r\nabc", "incomplete"),
    ],
)
def test_what_no_browser_takes_for_whole(data: bytes, why: str, step: int) -> None:
    with pytest.raises(h11.RemoteProtocolError, match=why):
        read(data, step)
