"""mitmproxy flow files, written by mitmproxy itself."""

import base64
import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mitmproxy import http, websocket
from mitmproxy.flow import Error
from mitmproxy.io import FlowWriter, tnetstring
from mitmproxy.test import tflow
from wsproto.frame_protocol import Opcode

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.header_values import split_trailers
from stillweb.snapshots.operations.importing import import_files, notes_on_left_out
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))


def flow(url: str, body: bytes, at: float, user: str = "", **headers: str) -> http.HTTPFlow:
    made = tflow.tflow(resp=True)
    made.request = http.Request.make("POST", url, b"sent", {"Content-Type": "text/plain"})
    made.request.headers["Host"] = "named.test"
    made.response = http.Response.make(201, body, {n.replace("_", "-"): v for n, v in headers.items()})
    made.response.raw_content = body
    made.request.timestamp_start, made.request.timestamp_end = at, at
    made.response.timestamp_start, made.response.timestamp_end = at + 0.5, at + 1.5
    if user:
        made.metadata["proxyauth"] = (user, "x")
    return made


def written(path: Path, *flows: object) -> Path:
    with open(path, "wb") as out:
        writer = FlowWriter(out)
        for one in flows:
            writer.add(one)  # type: ignore[arg-type]
    return path


def test_flows_of_mitmproxy(tmp_path: Path) -> None:
    packed = gzip.compress(b"one")
    first = flow("http://10.0.0.1:8080/1?a=b", packed, 1000.0, content_encoding="gzip")
    second = flow("https://example.test/2", b"two", 1001.0, user="alice")
    second.response.http_version = "HTTP/2.0"  # type: ignore[union-attr]
    third = flow("https://example.test/3", b"three", 1001.0)
    path = written(tmp_path / "x.flows", first, second, third)
    with Snapshot.open(path) as snapshot:
        captures = {c.url.rpartition("/")[2]: c for c in snapshot.captures()}
        one = captures["1?a=b"]
        assert one.url == "http://named.test/1?a=b"
        assert snapshot.read(one).body == packed
        assert snapshot.read(one).header("content-encoding") == "gzip"
        assert snapshot.read_request(one).body == b"sent"
        assert (one.method, one.status, one.session, one.timestamp) == (
            "POST",
            201,
            "default",
            "19700101001640000",
        )
        assert (captures["2"].session, captures["2"].protocol) == ("alice", "h2")
        assert (one.begin, one.end) == (1, 3)
        assert (captures["3"].begin, captures["3"].end) == (2, 4)


def test_flows_without_answer_or_body_are_left_out_and_said(tmp_path: Path) -> None:
    failed = tflow.tflow(err=True)
    streamed = flow("http://example.test/", b"x", 1.0)
    streamed.response.raw_content = None  # type: ignore[union-attr]
    path = written(
        tmp_path / "x.flows", failed, streamed, tflow.ttcpflow(), flow("http://example.test/", b"x", 1.0)
    )
    report = import_files([path], tmp_path / "s")
    assert report.captures == 1
    for part in ("got no answer", "a body is not in the file", "is of type tcp"):
        assert any(part in note for note in report.notes), report.notes
    assert verify(tmp_path / "s") == []


def test_flows_that_failed_are_taken_as_that(tmp_path: Path) -> None:
    said = (
        "[Errno 111] Connect call failed ('127.0.0.1', 9)",
        "Client disconnected.",
        "stream reset by client (CANCEL)",
    )
    failed = [tflow.tflow(err=True) for _ in said]
    for number, (one, told) in enumerate(zip(failed, said, strict=True)):
        one.request = http.Request.make("POST", f"http://dead.test/{number}", b"sent")
        one.request.timestamp_start = 1000.0
        one.error = Error(told)
        one.metadata["proxyauth"] = ("alice", "x")
    with Snapshot.open(written(tmp_path / "x.flows", *failed, flow("http://a.test/", b"x", 1.0))) as snapshot:
        (failure,) = snapshot.failures()
        assert len(notes_on_left_out(snapshot)) == 2
    request = failure.request
    assert (request.method, request.url, request.body) == ("POST", "http://dead.test/0", b"sent")
    assert (failure.reason, failure.message, failure.session) == ("refused", said[0], "alice")
    assert failure.moment == datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)


def test_an_answer_that_broke_off_is_marked(tmp_path: Path) -> None:
    one = flow("http://example.test/", b"half", 1.0)
    one.error = Error("peer closed connection without sending complete message body")
    with Snapshot.open(written(tmp_path / "x.flow", one)) as snapshot:
        (capture,) = snapshot.captures()
        assert capture.truncated == "disconnect"


def test_a_cut_flow_file_keeps_what_is_whole(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.flows",
        flow("http://example.test/1", b"x", 1.0),
        flow("http://example.test/2", b"x", 2.0),
    )
    path.write_bytes(path.read_bytes()[:-30])
    with Snapshot.open(path) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://named.test/1"]
        assert "is cut short" in notes_on_left_out(snapshot)[0]
    assert ["is cut short" in problem.message for problem in verify(path)] == [True]


@pytest.mark.parametrize(
    "data", [b"3:abc,", b"5:hello", b"4:3:x}}", b"12:3:abc,1:x?~}" * 3, b"0:~" + b"rubbish"]
)
def test_what_is_no_flow_file_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.flows"
    path.write_bytes(data)
    if data == b"5:hello":  # the start of a flow, cut short
        with Snapshot.open(path) as snapshot:
            assert list(snapshot.captures()) == []
        return
    with pytest.raises(DamagedInput, match=r"x\.flows: offset"):
        Snapshot.open(path)


def test_a_length_below_zero_does_not_read_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "x.flows"
    inner = b"1:a,-4:xx"
    path.write_bytes(b"%d:%b}" % (len(inner), inner))
    with pytest.raises(DamagedInput, match="no length"):
        Snapshot.open(path)


def test_a_damaged_flow_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.flows"
    starts = [0]
    with path.open("wb") as out:
        writer = FlowWriter(out)
        for _ in range(3):
            writer.add(tflow.tflow(resp=True))
            starts.append(out.tell())
    data = path.read_bytes()
    inside = data.index(b":", starts[1]) + 1
    path.write_bytes(data[:inside] + b"x" + data[inside + 1 :])
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == 2
    assert any(f"offset {starts[1]}: a damaged flow" in note for note in left_out_of(path))
    path.write_bytes(data[: starts[1]] + b"x" + data[starts[1] + 1 :])
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == 1
    assert any("what follows it is left out" in note for note in left_out_of(path))
    path.write_bytes(data[:5] + b"x" + data[6:])
    with pytest.raises(DamagedInput, match=r"x\.flows: offset 0: a damaged flow"):
        Snapshot.open(path)


def left_out_of(path: Path) -> list[str]:
    with Snapshot.open(path) as snapshot:
        return notes_on_left_out(snapshot)


def test_trailers_are_kept(tmp_path: Path) -> None:
    call = flow("https://grpc.test/pkg.Greeter/Hello", b"\0\0\0\0\0", 1000.0, content_type="application/grpc")
    call.response.trailers = http.Headers(((b"grpc-status", b"5"), (b"grpc-message", b"not found")))  # type: ignore[union-attr]
    with Snapshot.open(written(tmp_path / "x.flows", call)) as snapshot:
        (capture,) = snapshot.captures()
        fields, trailers = split_trailers(snapshot.read(capture).headers, 5)
        assert trailers == (("grpc-status", "5"), ("grpc-message", "not found"))
        assert ("grpc-status", "5") not in fields


def test_a_web_socket_keeps_its_messages(tmp_path: Path) -> None:
    talk = tflow.twebsocketflow()
    assert talk.websocket is not None
    talk.websocket.messages = [
        websocket.WebSocketMessage(Opcode.TEXT, True, "grüß".encode(), 1000.5),
        websocket.WebSocketMessage(Opcode.BINARY, False, b"\xff\0", 1000.7),
        websocket.WebSocketMessage(Opcode.TEXT, False, b"kept back from the client", 1000.8, dropped=True),
        websocket.WebSocketMessage(Opcode.TEXT, True, b"said for the client", 1000.9, injected=True),
    ]
    talk.websocket.closed_by_client, talk.websocket.close_code, talk.websocket.close_reason = (
        False,
        1001,
        "bye",
    )
    talk.request.timestamp_start = 1000.0
    report = import_files([written(tmp_path / "x.flows", talk)], tmp_path / "out")
    assert (report.captures, report.sockets, report.notes) == (0, 1, [])
    with Snapshot.open(tmp_path / "out") as snapshot:
        (said,) = snapshot.all_metadata("http://example.com/ws")
        assert said["messages"] == [
            {"from": "client", "text": "grüß"},
            {"from": "server", "base64": base64.b64encode(b"\xff\0").decode()},
        ]
        assert (said["times"], said["close"]) == ([1000500, 1000700], [1001, "bye"])


def test_a_web_socket_of_an_older_mitmproxy_is_named(tmp_path: Path) -> None:
    """Up to version 6 of mitmproxy a web socket was a flow of its own."""
    shake = tflow.twebsocketflow().get_state()
    shake |= {"version": 11, "metadata": {"websocket": True}, "websocket": None, "id": "1"}
    talk = {
        "type": "websocket",
        "version": 11,
        "id": "3",
        "metadata": {"websocket_handshake": "1"},
        "error": None,
    }
    path = tmp_path / "x.flows"
    path.write_bytes(b"".join(map(tnetstring.dumps, (shake, talk, tflow.tflow(resp=True).get_state()))))
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == 1
    shaken, said = left_out_of(path)
    assert "is a web socket without recorded messages: http://example.com/ws" in shaken
    assert "is of type websocket" in said


@pytest.mark.parametrize("harm", ["half", "corrupt", "short"])
def test_an_answer_that_is_not_whole_is_unsure_and_named(tmp_path: Path, harm: str) -> None:
    packed = gzip.compress(b"forty-two penguins" * 9)
    bodies = {"half": packed[:-9], "corrupt": packed[:12] + b"\x00\xff" * 9, "short": b"forty"}
    made = flow("http://a.test/", bodies[harm], 1.0)
    name, value = ("Content-Length", "18") if harm == "short" else ("Content-Encoding", "gzip")
    made.response.headers[name] = value  # type: ignore[union-attr]
    path = written(tmp_path / "x.flows", made)
    report = import_files([path], tmp_path / "s")
    assert ["cut short" in note for note in report.notes] == [True]
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert snapshot.cut_short(next(snapshot.captures()))


def test_a_tunnel_is_no_answer(tmp_path: Path) -> None:
    tunnel = flow("http://a.test/", b"", 1000.0)
    tunnel.request.method, tunnel.request.authority = "CONNECT", "a.test:443"
    report = import_files(
        [written(tmp_path / "x.flows", tunnel, flow("http://a.test/1", b"one", 1001.0))], tmp_path / "out"
    )
    assert (report.captures, len(report.notes)) == (1, 1)
