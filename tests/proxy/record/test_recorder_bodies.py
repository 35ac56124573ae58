"""The recorder keeps bodies bit for bit, headers and streams, and no secret."""

import base64
import gzip
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import PACKED, Lab, by_path, client, heard, tunnel
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import metadata, raw_bytes, recorded
from tests.support.waiting import HANG, STARTS, until

TOKEN = "ghp_" + "a1B2" * 9  # in the format of a key


@pytest.mark.parametrize("http2", [True, False])
@pytest.mark.parametrize("coding", sorted(PACKED))
def test_packed_bodies_stay_bit_for_bit(lab: Lab, tmp_path: Path, coding: str, http2: bool) -> None:
    url = f"https://demo.example/packed/{coding}"
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        client(recorder, http2=http2) as c,
    ):
        response = c.send(c.build_request("GET", url), stream=True)
        delivered = b"".join(response.iter_raw())
        response.close()
    (only,) = recorded(tmp_path / "s")
    assert delivered == only.body == PACKED[coding]
    assert only.header("Content-Encoding") == coding


@pytest.mark.parametrize("coding", sorted(PACKED))
def test_half_of_a_packed_body_is_kept_and_unsure(lab: Lab, tmp_path: Path, coding: str) -> None:
    """The body's length may be right: a server whose packer dies sends what it has."""
    bodies = {"/whole": PACKED[coding], "/half": PACKED[coding][:-4]}

    def answer(asked: Asked) -> Answer:
        return Answer(headers=[("Content-Encoding", coding)], body=bodies[asked.path])

    with Origin(answer) as origin, Writer.open(tmp_path / "s") as writer:
        place = {"half.example": ("127.0.0.1", origin.port)}
        with lab.recorder(writer, resolve=place) as recorder, client(recorder) as c:
            for path, body in bodies.items():
                with c.stream("GET", f"http://half.example{path}") as response:
                    assert b"".join(response.iter_raw()) == body
    with Snapshot.open(tmp_path / "s") as snapshot:
        matcher = snapshot.matcher()
        asked = [Request("GET", f"http://half.example{path}") for path in bodies]
        assert [matcher.lookup(one, matcher.session("x")).ambiguous for one in asked] == [False, True]
        assert [one.url for one in snapshot.captures() if snapshot.cut_short(one)] == [asked[1].url]


def test_codings_in_several_lines_are_all_undone(lab: Lab, tmp_path: Path) -> None:
    """Undoing only the first coding found neither secrets nor words in what was still packed."""
    packed = gzip.compress(gzip.compress(TOKEN.encode(), mtime=0), mtime=0)
    twice = Answer(
        headers=[("Content-Encoding", "gzip"), ("X", "1"), ("Content-Encoding", "gzip")], body=packed
    )
    with Origin(lambda _: twice) as origin, Writer.open(tmp_path / "s") as writer:
        place = {"twice.example": ("127.0.0.1", origin.port)}
        with lab.recorder(writer, resolve=place) as recorder, client(recorder) as c:
            response = c.get("http://twice.example/")
            assert response.headers.get_list("content-encoding") == ["gzip", "gzip"]
            assert response.text == TOKEN
    (only,) = recorded(tmp_path / "s")
    assert [name for name, _ in only.headers if name.lower() in ("content-encoding", "x")] == [
        "Content-Encoding",
        "X",
    ]
    assert only.header("Content-Encoding") == "gzip, gzip"
    assert TOKEN.encode() not in gzip.decompress(gzip.decompress(only.body))


def test_codings_without_end_are_kept_as_they_are_and_stop_no_recording(lab: Lab, tmp_path: Path) -> None:
    odd = Answer(headers=[("Content-Encoding", "gzip, " * 8000 + "gzip")], body=b"abc")
    with Origin(lambda _: odd) as origin, Writer.open(tmp_path / "s") as writer:
        place = {"odd.example": ("127.0.0.1", origin.port)}
        with lab.recorder(writer, resolve=place) as recorder, client(recorder) as c:
            for path in ("one", "two"):
                with c.stream("GET", f"http://odd.example/{path}") as response:
                    assert b"".join(response.iter_raw()) == b"abc"
    first, _ = recorded(tmp_path / "s")  # the second names the first one's body
    assert first.body == b"abc"


def test_headers_stay_as_they_were(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        client(recorder, http2=False) as c,
    ):
        response = c.get(
            "http://plain.example/headers", headers={"If-None-Match": '"v0"', "Cache-Control": "max-age=9"}
        )
        assert response.headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
        assert response.headers.get_list("set-cookie") == ["theme=dark; Path=/", "lang=de"]
    (only,) = recorded(tmp_path / "s")
    assert only.header("Date") == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert only.header("Expires") == "Thu, 01 Jan 1970 00:00:01 GMT"
    assert [v for n, v in only.headers if n == "Set-Cookie"] == ["theme=dark; Path=/", "lang=de"]
    assert only.body == b"<p>caf\xe9"
    assert only.asked("If-None-Match") == '"v0"'
    assert lab.plain.asked[-1].header("If-None-Match") == '"v0"'  # nothing is taken out on the way


@pytest.mark.parametrize("scheme", ["http://plain", "https://demo"])
def test_bodies_of_requests(lab: Lab, tmp_path: Path, scheme: str) -> None:
    large = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(100_000))  # 3.2 MB: spooled to a file

    def chunks() -> Iterator[bytes]:
        yield b"one,"
        yield b"two"

    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        assert c.post(f"{scheme}.example/echo?1", content=b"small").content == b"small"
        assert c.put(f"{scheme}.example/echo?2", content=chunks()).content == b"one,two"
        assert c.patch(f"{scheme}.example/echo?3", content=large).content == large
        assert c.post(f"{scheme}.example/echo?4").content == b""
        assert c.request("DELETE", f"{scheme}.example/echo?5", content=b"gone").content == b"gone"
    found = by_path(recorded(tmp_path / "s"))
    assert {p: (r.method, r.request_body) for p, r in found.items()} == {
        "/echo?1": ("POST", b"small"),
        "/echo?2": ("PUT", b"one,two"),
        "/echo?3": ("PATCH", large),
        "/echo?4": ("POST", b""),
        "/echo?5": ("DELETE", b"gone"),
    }
    assert found["/echo?3"].body == large


def test_answers_without_a_body(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        assert c.get("http://plain.example/empty").status_code == 204
        assert c.get("https://demo.example/not-modified").status_code == 304
        assert c.head("http://plain.example/headers").headers["content-length"] == "7"
        assert c.get("http://plain.example/refused").status_code == 503  # an origin's own answer is a capture
    found = by_path(recorded(tmp_path / "s"))
    assert {p: (r.status, r.body) for p, r in found.items()} == {
        "/empty": (204, b""),
        "/not-modified": (304, b""),
        "/headers": (200, b""),
        "/refused": (503, b"come back later"),
    }


@pytest.mark.parametrize(
    "url",
    ["https://demo.example/many?80", "http://plain.example/many?80", "http://plain.example/announced?80"],
)
def test_long_bodies_are_streamed_and_whole(lab: Lab, tmp_path: Path, url: str) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        body = c.get(url).content
    (only,) = recorded(tmp_path / "s")
    assert len(body) == 80 * 65536
    assert only.body == body
    assert only.header("Content-Length") == str(len(body))
    assert only.header("Transfer-Encoding") is None
    assert [p.name for p in (tmp_path / "s").rglob("*") if "large" in p.name or "tmp" in p.name] == []


def test_a_picture_that_a_browser_gives_up_at_its_first_bytes_is_kept_whole(lab: Lab, tmp_path: Path) -> None:
    picture = {"Accept": "image/avif,image/webp,image/*,*/*;q=0.8"}
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        client(recorder, http2=False) as c,
    ):
        with c.stream("GET", "http://plain.example/many?80", headers=picture) as response:
            next(response.iter_raw(100))
        assert until(recorder.captures_of)
        assert recorder.stats.aborted == 0
    (only,) = recorded(tmp_path / "s")
    assert len(only.body) == 80 * 65536


def test_event_streams_are_passed_on_at_once_and_kept(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        client(recorder, http2=False) as c,
    ):
        with c.stream("GET", "https://demo.example/events") as response:
            lines = response.iter_lines()
            assert [next(lines) for _ in range(5)] == ["data: 0", "", "data: 1", "", "data: 2"]
            assert recorder.wait_quiet(seconds=0.1, timeout=HANG)  # a stream without end is not waited for
        assert until(recorder.captures_of)
        with c.stream("GET", "http://plain.example/events?still-open") as response:
            next(response.iter_lines())
            recorder.close()
    closed, still_open = recorded(tmp_path / "s")
    for one in (closed, still_open):
        assert one.body.startswith(b"data: 0\n\n")
        assert one.warc["WARC-Truncated"] == "disconnect"


def test_a_stream_that_says_that_it_is_done_is_whole_whoever_closes_it(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        client(recorder, http2=False) as c,
    ):
        with c.stream("GET", "http://plain.example/told") as response:
            assert "data: [DONE]" in response.iter_lines()
        assert until(recorder.captures_of)
    (whole,) = recorded(tmp_path / "s")
    assert whole.body == b'data: {"delta": "yes"}\n\ndata: [DONE]\n\n'
    assert "WARC-Truncated" not in whole.warc


def test_secrets_never_reach_the_disk(lab: Lab, tmp_path: Path) -> None:
    secrets = [
        "3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
        "tok-9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s",
        "correct-horse-battery",
        "sk-live-0123456789abcdefABCDEF",
    ]
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        answered = c.post(
            f"https://demo.example/login?api_key={secrets[3]}",
            data={"user": "ann", "password": secrets[2]},
            headers={"Authorization": f"Bearer {secrets[3]}"},
        )
        assert answered.json()["access_token"] == secrets[1]  # the client gets the real thing
        assert secrets[0] in answered.headers["set-cookie"]
        assert secrets[0] in c.get("https://demo.example/account").text
    everything = raw_bytes(tmp_path / "s") + b"".join(
        p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()
    )
    for secret in secrets:
        assert secret.encode() not in everything
    login, account = recorded(tmp_path / "s")
    cookie = (login.header("Set-Cookie") or "").partition(";")[0]
    assert cookie.startswith("sessionid=stillweb-secret-")
    assert account.asked("Cookie") == cookie
    assert account.body.decode() == f"cookie {cookie}"  # so that replay fits together
    assert account.header("Content-Length") in (None, str(len(account.body)))


def test_redaction_can_be_switched_off(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, redact=False) as recorder,
        client(recorder) as c,
    ):
        c.get("https://demo.example/login")
    assert b"3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c" in raw_bytes(tmp_path / "s")


def test_web_sockets_are_kept_with_what_was_said(lab: Lab, tmp_path: Path) -> None:
    wsproto = pytest.importorskip("wsproto")
    from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request, TextMessage

    def serve(peer: socket.socket) -> None:
        for connection, event in heard(peer):
            if isinstance(event, Request):
                peer.sendall(connection.send(AcceptConnection(subprotocol=TOKEN)))
            elif isinstance(event, TextMessage):
                peer.sendall(connection.send(TextMessage(f"echo {event.data}")))
            elif isinstance(event, BytesMessage):
                peer.sendall(connection.send(BytesMessage(bytes(event.data))))
            elif isinstance(event, CloseConnection):
                peer.sendall(connection.send(event.response()))
                return

    with lab.between(tmp_path / "s", "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target="/chat?x=1", subprotocols=[TOKEN])))
        seen: list[str] = []
        packed: list[bytes] = []
        while not packed:
            ws.receive_data(peer.recv(4096))
            for event in ws.events():
                if isinstance(event, AcceptConnection):
                    peer.sendall(ws.send(TextMessage('{"password": "correct-horse-battery"}')))
                elif isinstance(event, TextMessage):
                    seen.append(event.data)
                    again = BytesMessage(b"\0correct-horse-battery")
                    peer.sendall(ws.send(TextMessage("hello") if len(seen) == 1 else again))
                elif isinstance(event, BytesMessage):
                    packed.append(bytes(event.data))
                    peer.sendall(ws.send(CloseConnection(1000)))
        assert until(lambda: recorder.stats.under_way == 0)
        assert recorder.wait_quiet(seconds=0, timeout=HANG)
        assert recorder.failures == []
    assert seen == ['echo {"password": "correct-horse-battery"}', "echo hello"]
    assert recorded(tmp_path / "s") == []
    ((address, content),) = metadata(tmp_path / "s")
    record = json.loads(content)
    assert address == record["url"] == "http://ws.example/chat?x=1"
    assert record["replayable"] is True
    assert "close" not in record  # it was the client who closed
    assert [m["from"] for m in record["messages"]] == ["client", "server"] * 3
    assert record["messages"][3]["text"] == "echo hello"
    assert b"correct-horse-battery" not in raw_bytes(tmp_path / "s")
    assert record["protocol"].startswith("stillweb-secret-")
    assert packed == [b"\0correct-horse-battery"]  # the client gets the real thing
    sent, echoed = (base64.b64decode(m["base64"]) for m in record["messages"][4:])
    assert sent == echoed
    assert sent.startswith(b"\0stillweb-secret-")


@pytest.mark.parametrize(("name", "bound"), [("MOST_MESSAGES", 3), ("MOST_BYTES", 3000)])
def test_what_a_web_socket_says_above_the_bounds_is_passed_on_and_counted(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(f"stillweb.proxy.record.addon.{name}", bound)
    passed: list[int] = []

    def talk(socket: ServerConnection) -> None:
        for number in range(6):
            socket.send(str(number) * 1000)
        socket.recv()

    with (
        serve(talk, "127.0.0.1", 0, compression=None) as server,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
    ):
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        address = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
        with connect(address, proxy=recorder.url, compression=None) as client:
            passed += [int(client.recv()[0]) for _ in range(6)]
            client.send("bye")
        server.shutdown()
        serving.join()
        assert until(lambda: recorder.stats.under_way == 0)
    assert passed == [*range(6)]
    assert "too many to be replayed" in str(recorder.failures)
    ((_, content),) = metadata(tmp_path / "s")
    record = json.loads(content)
    assert [message["text"][0] for message in record["messages"]] == ["0", "1", "2"]
    assert (record["replayable"], record["left_out"]) == (False, 4)


@pytest.mark.slow
def test_a_body_of_60_megabytes_in_flat_memory(lab: Lab, tmp_path: Path) -> None:
    """In a process of its own, whose peak memory may not grow with the body."""
    program = (
        "import resource, subprocess, sys\n"
        "from pathlib import Path\n"
        "from stillweb.proxy.net.ca import Authority\n"
        "from stillweb.proxy.record.recorder import Recorder\n"
        "from stillweb.snapshots.writer import Writer\n"
        "path, state, ca, port = sys.argv[1:]\n"
        "def peak():\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "with Writer.open(path) as writer, Recorder(writer, authority=Authority.load_or_create(Path(state)),\n"
        "        upstream_ca=Path(ca), resolve={'demo.example': ('127.0.0.1', int(port))}) as recorder:\n"
        "    def curl(megabytes):\n"
        "        subprocess.run(['curl', '-sSf', '-o', '/dev/null', f'https://demo.example/many?{megabytes * 16}'],\n"
        "            env=recorder.environment(), check=True)\n"
        "        assert recorder.wait_quiet(seconds=0, timeout=60)\n"
        "    curl(4)\n"
        "    before = peak()\n"
        "    curl(60)\n"
        "    print(peak() - before)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            tmp_path / "s",
            lab.ours.directory,
            lab.ca.certificate_path,
            str(lab.secure.port),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40  # MB
    assert recorded(tmp_path / "s")[-1].warc["WARC-Protocol"] == "h2"
    assert recorded(tmp_path / "s")[-1].header("Content-Length") == str(60 << 20)


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_that_is_answered_before_its_end_is_kept_with_what_was_sent_of_it(
    lab: Lab, tmp_path: Path, whole: bool
) -> None:
    size = 4 << 20

    def serve(peer: socket.socket) -> None:
        got = len(peer.recv(65536).partition(b"\r\n\r\n")[2])
        peer.sendall(b"HTTP/1.1 413 Enough\r\nContent-Length: 3\r\n\r\nbig")
        while got < size and (piece := peer.recv(65536)):
            got += len(piece)

    with lab.between(tmp_path / "s", "early.example", serve) as (recorder, peer):
        head = b"POST http://early.example/ HTTP/1.1\r\nHost: early.example\r\nContent-Length: %d\r\n\r\n"
        peer.sendall(head % size)
        peer.sendall(b"x" * 100_000)
        came = b""
        while not came.endswith(b"big"):
            came += peer.recv(65536)
        if whole:
            peer.sendall(b"x" * (size - 100_000))
            assert until(lambda: recorder.stats.captures)
        peer.close()
        assert until(lambda: recorder.stats.captures)
        told = [why for _, why in recorder.failures]
    assert told == (
        [] if whole else ["answered before its body was whole: kept with the 100000 bytes that were sent"]
    )
    (one,) = recorded(tmp_path / "s")
    assert (one.status, one.body) == (413, b"big")
    assert len(one.request_body) == (size if whole else 100_000)
