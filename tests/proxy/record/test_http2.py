"""HTTP/2: connections that end softly, origins that break the rules, and clients that do not read."""

import contextlib
import hashlib
import os
import random
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import h2.events
import httpx
import pytest
from hyperframe.frame import GoAwayFrame
from mitmproxy.proxy.layers.http._http_h2 import SendH2Data

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.mitmproxy_compat import http2
from stillweb.proxy.record.mitmproxy_compat.http1 import Unreadable
from stillweb.proxy.record.mitmproxy_compat.http2 import UnreadBody, readable_fields, readable_trailers
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.frames import STATUS, Origin, Stream, ask, speaking
from tests.proxy.lab import Lab
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, STARTS, until

REFUSED_STREAM = 7


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ([(b"upgrade", b"h2,h2c"), (b"connection", b"Upgrade"), (b"x", b"1")], [(b"x", b"1")]),
        ([(b"x", b" 1\t"), (b":odd", b"1")], [(b"x", b"1")]),
        ([(b"content-length", b"5"), (b"x", b""), (b"content-length", b"5")], [(b"x", b""), (b"content-length", b"5")]),
        ([(b"content-length", b"5"), (b"content-length", b"6")], []),
        ([(b"content-length", b"five")], []),
    ],
)  # fmt: skip
def test_fields_that_browsers_take(more: list[tuple[bytes, bytes]], kept: list[tuple[bytes, bytes]]) -> None:
    assert readable_fields([STATUS, *more]) == [STATUS, *kept]


@pytest.mark.parametrize(
    "fields",
    [
        [(b"x", b"1"), STATUS], [STATUS, STATUS], [(b":status", b"20")], [(b":status", b"200 OK")], [],
        [STATUS, (b"X", b"1")], [STATUS, (b"a b", b"1")], [STATUS, (b"", b"1")], [STATUS, (b"transfer-encoding", b"chunked")],
        [STATUS, (b"x", b"a\nb")], [STATUS, (b"x", b"a\0b")],
    ],
)  # fmt: skip
def test_fields_that_browsers_refuse(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unreadable):
        readable_fields(fields)
    if fields[:1] == [STATUS] and fields[-1] != STATUS:
        with pytest.raises(Unreadable):
            readable_trailers(fields[1:])


Recording = Callable[
    [Callable[[int, Stream], None]], contextlib.AbstractContextManager[tuple[Recorder, Origin]]
]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    origin_ca = Authority.load_or_create(tmp_path / "origin")

    @contextlib.contextmanager
    def start(answer: Callable[[int, Stream], None]) -> Iterator[tuple[Recorder, Origin]]:
        origin = Origin(answer, origin_ca.context_for("x.test", ("h2",)))
        with (
            origin.serving() as port,
            Writer.open(tmp_path / "site") as writer,
            Recorder(
                writer,
                resolve={"x.test": ("127.0.0.1", port)},
                upstream_ca=origin_ca.certificate_path,
                authority=Authority.load_or_create(tmp_path / "state"),
            ) as recorder,
        ):
            yield recorder, origin
            recorder.wait_quiet(seconds=0)

    return start


@contextlib.contextmanager
def browsing(recorder: Recorder) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=recorder.ca_path)
    with httpx.Client(
        proxy=recorder.url, verify=context, http2=True, trust_env=False, timeout=HANG
    ) as client:
        yield client


def bodies(path: Path) -> dict[str, bytes]:
    with Snapshot.open(path) as snapshot:
        return {c.url.rpartition("/")[2]: snapshot.read(c).body for c in snapshot.captures()}


def test_what_is_under_way_when_a_connection_is_ended_softly_is_answered(
    recording: Recording, tmp_path: Path
) -> None:
    held: list[Stream] = []
    both = threading.Event()

    def answer(number: int, stream: Stream) -> None:
        if number:
            stream.head()
            stream.body(b"again")
            return
        held.append(stream)
        if stream.path == "/begun":
            stream.head((b"content-length", b"11"))
            stream.body(b"begun", end=False)
            both.set()
        else:  # the second of both: not looked at
            held[0].go_away(held[0].number)
            held[0].body(b", done")

    with recording(answer) as (recorder, origin), browsing(recorder) as client:
        found: list[bytes] = []
        first = threading.Thread(target=lambda: found.append(client.get("https://x.test/begun").content))
        first.start()
        assert both.wait(HANG)
        assert client.post("https://x.test/order", content=b"1").content == b"again"
        first.join(HANG)
        assert client.get("https://x.test/later").content == b"again"
        assert found == [b"begun, done"]
        assert recorder.failures == []
        assert origin.got == [
            (0, "GET", "/begun"),
            (0, "POST", "/order"),
            (1, "POST", "/order"),
            (1, "GET", "/later"),
        ]
    assert bodies(tmp_path / "site") == {"begun": b"begun, done", "order": b"again", "later": b"again"}


def test_a_request_that_was_refused_unseen_is_sent_again(recording: Recording, tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(_: int, stream: Stream) -> None:
        seen.append(stream.path)
        if seen.count("/order") == 1:
            stream.reset(REFUSED_STREAM)
        else:
            stream.head()
            stream.body(b"taken")

    with recording(answer) as (recorder, _), browsing(recorder) as client:
        assert client.post("https://x.test/order", content=b"1").content == b"taken"
        assert recorder.failures == []
    assert seen == ["/order", "/order"]
    assert bodies(tmp_path / "site") == {"order": b"taken"}


BROKEN = {
    "/field": ([(b"a b", b"1")], b"", "it has a field that HTTP/2 forbids: 'a b'"),
    "/break": ([(b"x", b"a\nb")], b"", "there is a line break or NUL in its field x"),
    "/less": ([(b"content-length", b"5")], b"1234", "its body has 1 byte less than it says"),
    "/more": ([(b"content-length", b"3")], b"1234", "its body has 1 byte more than it says"),
}


def test_a_broken_answer_breaks_no_other(recording: Recording, tmp_path: Path) -> None:
    def answer(_: int, stream: Stream) -> None:
        if stream.path in BROKEN:
            stream.head(*BROKEN[stream.path][0])
            stream.body(BROKEN[stream.path][1])
        else:
            stream.head((b"upgrade", b"h2,h2c"), (b"x", b" 1 "))
            stream.body(b"whole")

    with recording(answer) as (recorder, origin), browsing(recorder) as client:
        for path in BROKEN:
            with contextlib.suppress(httpx.TransportError):
                assert client.get(f"https://x.test{path}").status_code == 502
        response = client.get("https://x.test/page")
        assert (response.content, response.headers["x"]) == (b"whole", "1")
        told = {url.removeprefix("https://x.test"): why for url, why in recorder.failures}
        assert {number for number, _, _ in origin.got} == {0}  # one connection for all
    assert told == {path: why for path, (_, _, why) in BROKEN.items()}
    assert bodies(tmp_path / "site") == {"page": b"whole"}


@pytest.mark.parametrize(("code", "name"), [(8, "CANCEL"), (REFUSED_STREAM, "REFUSED_STREAM"), (99, "99")])
def test_an_answer_that_its_origin_takes_back_is_a_failure(
    recording: Recording, code: int, name: str, tmp_path: Path
) -> None:
    def answer(_: int, stream: Stream) -> None:
        stream.head()
        stream.body(b"half of", end=False)
        stream.reset(code)

    with recording(answer) as (recorder, _), browsing(recorder) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("https://x.test/page")
        assert recorder.failures == [("https://x.test/page", f"the origin reset its stream ({name})")]
        assert recorder.stats.aborted == 0
    assert bodies(tmp_path / "site") == {}


def test_an_answer_stays_whole_whose_origin_wants_no_more_of_the_request(
    recording: Recording, tmp_path: Path
) -> None:
    seen, said = threading.Event(), threading.Event()

    def answer(_: int, stream: Stream) -> None:
        stream.head()
        stream.body(stream.path.encode())
        if stream.path == "/early":

            def go_on() -> None:  # in a packet of its own
                assert seen.wait(HANG)
                stream.reset(0)
                said.set()

            threading.Thread(target=go_on).start()

    with recording(answer) as (recorder, _):
        with speaking(recorder) as (secure, wire):
            ask(wire, 1, "POST", "/early")
            wire.send_data(1, b"some")
            got: dict[int, bytes] = {1: b"", 3: b""}
            ended: list[int] = []
            while len(ended) < 2:
                secure.sendall(wire.data_to_send())
                for event in wire.receive_data(secure.recv(1 << 16)):
                    assert not isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated))
                    if isinstance(event, h2.events.DataReceived):
                        got[event.stream_id] += event.data
                    if isinstance(event, h2.events.StreamEnded):
                        ended.append(event.stream_id)
                if got[1] == b"/early" and not seen.is_set():
                    seen.set()
                    assert said.wait(HANG)
                    ask(wire, 3, "GET", "/next")
            wire.send_data(1, b", and the rest", end_stream=True)
            secure.sendall(wire.data_to_send())
            assert until(lambda: recorder.stats.captures == 2)
        assert got == {1: b"/early", 3: b"/next"}
        assert recorder.failures == []
    with Snapshot.open(tmp_path / "site") as snapshot:
        (early,) = [c for c in snapshot.captures() if c.method == "POST"]
        assert snapshot.read_request(early).body == b"some, and the rest"


@pytest.mark.parametrize("kind", [b"application/grpc", b"text/plain"])
def test_trailers_are_kept(recording: Recording, kind: bytes, tmp_path: Path) -> None:
    def answer(_: int, stream: Stream) -> None:
        stream.head((b"content-type", kind))
        stream.body(b"some", end=False)
        stream.trailers((b"grpc-status", b"0"), (b"x-cost", b"2"), (b"set-cookie", b"a=1"))

    with recording(answer) as (recorder, _), browsing(recorder) as client:
        assert client.post("https://x.test/call", content=b"1").content == b"some"
    with Snapshot.open(tmp_path / "site") as snapshot:
        (call,) = snapshot.captures()
        fields = dict(snapshot.read(call).headers)
    assert (fields["grpc-status"], fields["x-cost"], fields["Trailer"]) == ("0", "2", "grpc-status, x-cost")
    assert "set-cookie" not in fields


def test_a_client_that_ends_its_connection_softly_is_answered(recording: Recording, tmp_path: Path) -> None:
    body = b"x" * 200_000

    def answer(_: int, stream: Stream) -> None:
        stream.head()
        for at in range(0, len(body), 10_000):
            stream.body(body[at : at + 10_000], end=at + 10_000 == len(body))

    with recording(answer) as (recorder, _):
        with speaking(recorder) as (secure, wire):
            ask(wire, 1, "GET", "/long")
            secure.sendall(wire.data_to_send() + GoAwayFrame(0).serialize())
            got = b""
            while data := secure.recv(1 << 16):  # until the recorder ends the connection
                for event in wire.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        got += event.data
                        wire.acknowledge_received_data(event.flow_controlled_length, 1)
                secure.sendall(wire.data_to_send())
        assert got == body
        assert (recorder.stats.aborted, recorder.failures) == (0, [])
    assert bodies(tmp_path / "site") == {"long": body}


MEGABYTES = 60

# Reads nothing until the recorder has all of it.
PROGRAM = """
import hashlib, resource, socket, ssl, sys
from pathlib import Path
import h2.connection, h2.config, h2.events
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer

path, state, ca, port, megabytes = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def fetch(recorder, pieces):
    captures = recorder.stats.captures
    sock = socket.create_connection(("127.0.0.1", recorder.port))
    sock.sendall(b"CONNECT demo.example:443 HTTP/1.1\\r\\n\\r\\n")
    while not sock.recv(1 << 16).endswith(b"\\r\\n\\r\\n"):
        pass
    context = ssl.create_default_context(cafile=recorder.ca_path)
    context.set_alpn_protocols(["h2"])
    sock = context.wrap_socket(sock, server_hostname="demo.example")
    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    wire.initiate_connection()
    head = {":method": "GET", ":scheme": "https", ":authority": "demo.example", ":path": f"/many?{pieces}"}
    wire.send_headers(1, list(head.items()), end_stream=True)
    sock.sendall(wire.data_to_send())
    assert recorder.wait_quiet(seconds=1, timeout=60)
    assert recorder.stats.captures == captures + 1
    digest, ended = hashlib.sha256(), False
    while not ended:
        data = sock.recv(1 << 16)
        assert data
        for event in wire.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                digest.update(event.data)
                wire.acknowledge_received_data(event.flow_controlled_length, 1)
            ended = ended or isinstance(event, h2.events.StreamEnded)
        sock.sendall(wire.data_to_send())
    sock.close()
    return digest.hexdigest()

with Writer.open(path) as writer, Recorder(writer, authority=Authority.load_or_create(Path(state)),
        upstream_ca=Path(ca), resolve={"demo.example": ("127.0.0.1", int(port))}) as recorder:
    fetch(recorder, 64)
    before = peak()
    print(fetch(recorder, int(megabytes) * 16))
    print(peak() - before)
    assert recorder.failures == []
"""


@pytest.mark.slow
def test_a_long_body_that_is_not_read_is_not_held_in_memory(lab: Lab, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    given = [
        tmp_path / "s",
        lab.ours.directory,
        lab.ca.certificate_path,
        str(lab.secure.port),
        str(MEGABYTES),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given],
        env=environment, capture_output=True, text=True, timeout=STARTS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    digest, grown = done.stdout.split()
    assert int(grown) < 40  # MB
    last = recorded(tmp_path / "s")[-1]
    assert (len(last.body), hashlib.sha256(last.body).hexdigest()) == (MEGABYTES << 20, digest)


@pytest.mark.parametrize("full", [False, True])
def test_what_goes_in_comes_out_in_order(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "UNREAD_MEMORY", 1000)
    if full:
        written = os.pwrite

        def pwrite(fd: int, data: bytes, at: int) -> int:
            if at >= 60_000:
                raise OSError(28, "no space left")
            return written(fd, data[:7000], at)

        monkeypatch.setattr(http2.os, "pwrite", pwrite)
    draw = random.Random(7)
    kept = UnreadBody(tmp_path)
    sent = came = b""
    for turn in range(2000):
        if draw.random() < (0.6 if turn < 1500 else 0.2):
            data = draw.randbytes(draw.choice([0, 10, 900, 16384]))
            kept.append(SendH2Data(data, False))
            sent += data
        elif kept:
            chunk = kept.popleft()
            taken = draw.randrange(len(chunk.data) + 1)
            came += chunk.data[:taken]
            if taken < len(chunk.data):
                kept.appendleft(SendH2Data(chunk.data[taken:], chunk.end_stream))
    kept.append(SendH2Data(b"", True))
    chunks = []
    while kept:
        chunks.append(kept.popleft())
    assert came + b"".join(chunk.data for chunk in chunks) == sent
    assert [chunk.end_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(len(chunk.data) <= 16384 for chunk in chunks)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IndexError):
        kept.popleft()


def test_a_flood_of_requests_that_are_taken_back_keeps_no_other_client_waiting(recording: Recording) -> None:
    def answer(_: int, stream: Stream) -> None:
        stream.head()
        stream.body(b"whole")

    with recording(answer) as (recorder, _), browsing(recorder) as other:
        assert other.get("https://x.test/before").content == b"whole"
        with speaking(recorder) as (secure, wire):
            for number in range(1, 6000, 2):
                ask(wire, number, "GET", "/flood")
                wire.reset_stream(number)
            secure.sendall(wire.data_to_send())
            assert other.get("https://x.test/meanwhile").content == b"whole"
            assert recorder.stats.requests < 1500
