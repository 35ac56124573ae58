"""HTTP/2 origins that end connections softly or break the rules: each exchange has the end that browsers give it."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import h2.events
import httpx
import pytest
from hyperframe.frame import GoAwayFrame

from stillweb.proxy.record.mitmproxy_compat.http1 import Unreadable
from stillweb.proxy.record.mitmproxy_compat.http2 import readable_fields, readable_trailers
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.wire.certificates import Authority
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.frames import STATUS, Origin, Stream, ask, speaking
from tests.support.waiting import HANG, until

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
    "/field": ([(b"a b", b"1")], b"", "it has a field that HTTP/2 has not: 'a b'"),
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
    """CANCEL was taken for the client's, and told nobody."""

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
