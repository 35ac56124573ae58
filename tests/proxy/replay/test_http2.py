"""A single HTTP/2 connection, spoken to frame by frame."""

import contextlib
import gzip
import ssl
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay import connection
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.http1 import MAX_FIELDS, MAX_HEAD, TOO_MANY
from tests.proxy.frozen import Site
from tests.proxy.gateways import BIG, PAGE, tunnel
from tests.support.waiting import until


def asked(connection: h2.connection.H2Connection, stream: int, path: str, *more: tuple[str, str]) -> None:
    fields = [(":method", "GET"), (":authority", "two.example"), (":scheme", "https"), (":path", path)]
    connection.send_headers(stream, [*fields, *more], end_stream=True)


def answers(sock: ssl.SSLSocket, connection: h2.connection.H2Connection, stream: int) -> bytes:
    """The body that comes on a stream; what has come when the gateway closes."""
    body = b""
    while data := sock.recv(1 << 16):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.DataReceived) and event.stream_id == stream:
                body += event.data or b""
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id == stream:
                return body
    return body


def test_a_request_taken_back_at_once_harms_no_other(gateway: Gateway) -> None:
    """A browser that leaves a page does so; on a busy machine all of it comes in one piece."""
    before = gateway.stats
    with tunnel(gateway, "two.example", ("h2",), session="taken-back") as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/big")
        mine.reset_stream(1)
        asked(mine, 3, "/big")
        mine.reset_stream(3)
        asked(mine, 5, "/")
        sock.sendall(mine.data_to_send())
        assert answers(sock, mine, 5) == PAGE
    told = [e for e in gateway.ledger.entries() if e["session"] == "taken-back"]
    assert [e["url"] for e in told] == [f"https://two.example/{name}" for name in ("big", "big", "")]
    assert (gateway.stats.malformed, gateway.stats.failures) == (before.malformed, before.failures)


def test_a_client_that_waits_to_be_told_to_go_on_is_told(gateway: Gateway) -> None:
    """Java's waits for ever."""
    with tunnel(gateway, "two.example", ("h2",), session="waits") as sock:
        mine = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        mine.initiate_connection()
        fields = [(":method", "POST"), (":authority", "two.example"), (":scheme", "https"), (":path", "/")]
        mine.send_headers(1, [*fields, ("expect", "100-continue")])
        sock.sendall(mine.data_to_send())
        told: list[h2.events.Event] = []
        while not told:
            told += [
                event
                for event in mine.receive_data(sock.recv(1 << 16))
                if isinstance(event, h2.events.InformationalResponseReceived)
            ]
        mine.send_data(1, b"body", end_stream=True)
        sock.sendall(mine.data_to_send())
        answers(sock, mine, 1)
    (entry,) = [e for e in gateway.ledger.entries() if e["session"] == "waits"]
    assert (entry["method"], entry["status"], entry["body"]) == ("POST", 504, "body")


def test_a_client_that_says_goodbye_with_its_last_request_is_answered(gateway: Gateway) -> None:
    with tunnel(gateway, "two.example", ("h2",), session="goodbye") as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/")
        sent = mine.data_to_send()
        sock.sendall(sent + b"\x00\x00\x08\x07" + bytes(5) + bytes(8))
        assert answers(sock, mine, 1) == PAGE


def test_one_that_goes_on_reading_after_its_goodbye_has_all_of_its_answers(gateway: Gateway) -> None:
    got, ended = {1: b"", 3: b""}, 0
    with tunnel(gateway, "two.example", ("h2",), session="long-goodbye") as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/big")
        asked(mine, 3, "/none")
        sock.sendall(mine.data_to_send() + b"\x00\x00\x08\x07" + bytes(5) + bytes(8))
        while data := sock.recv(1 << 16):
            for event in mine.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    got[event.stream_id] += event.data
                    mine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                ended += isinstance(event, h2.events.StreamEnded)
            sock.sendall(mine.data_to_send())  # windows, among others
    assert (got[1], ended) == (BIG, 2)
    told = [e["status"] for e in gateway.ledger.entries() if e["session"] == "long-goodbye"]
    assert told == [200, 504]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_asked_before_a_protocol_error_is_answered_and_in_the_ledger(
    gateway: Gateway, at_once: bool
) -> None:
    """Though all of it came in one piece, or byte after byte."""
    before, session = gateway.stats, f"malformed-{at_once}"
    with tunnel(gateway, "two.example", ("h2",), session=session) as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/")
        asked(mine, 3, "/nowhere")
        sent = mine.data_to_send() + b"\x00\x00\x08\x06\x00\x00\x00\x00\x01" + bytes(8)  # a ping of a stream
        for piece in [sent] if at_once else [sent[n : n + 1] for n in range(len(sent))]:
            sock.sendall(piece)
        assert answers(sock, mine, 1) == PAGE
        assert until(lambda: gateway.stats.malformed == before.malformed + 1)

    def told() -> list[tuple[str, int]]:
        return [(e["url"], e["status"]) for e in gateway.ledger.entries() if e["session"] == session]

    ended = ("https://two.example/", 0)
    assert until(lambda: ended in told())
    assert told() == [("https://two.example/", 200), ("https://two.example/nowhere", 504), ended]


def test_a_head_is_taken_up_to_the_length_that_is_told(gateway: Gateway) -> None:
    with tunnel(gateway, "two.example", ("h2",), session="long-head") as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/", ("x-told", "long" * 25_000))
        sock.sendall(mine.data_to_send())
        assert answers(sock, mine, 1) == PAGE
        assert mine.remote_settings.max_header_list_size == MAX_HEAD
    told = [e["status"] for e in gateway.ledger.entries() if e["session"] == "long-head"]
    assert told == [200]


def test_a_request_with_thousands_of_cookies_is_refused_alone(gateway: Gateway) -> None:
    with tunnel(gateway, "two.example", ("h2",), session="cookies") as sock:
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        asked(mine, 1, "/", ("cookie", "a=1; " * MAX_FIELDS))
        asked(mine, 3, "/", *[("cookie", f"a{n}=1") for n in range(MAX_FIELDS)])  # crumbs (RFC 9113, 8.2.3)
        asked(mine, 5, "/", *[("cookie", f"a{n}=1") for n in range(180)])
        sock.sendall(mine.data_to_send())
        assert answers(sock, mine, 5)
    told = [(e["status"], e.get("why")) for e in gateway.ledger.entries() if e["session"] == "cookies"]
    assert told[:2] == [(0, f"refused: {TOO_MANY}")] * 2
    assert len(told) == 3


@pytest.mark.slow
def test_a_client_that_pings_without_an_end_and_reads_nothing_is_sent_away(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to its pings would fill the memory."""
    monkeypatch.setattr(connection, "PATIENCE", 1.5)
    monkeypatch.setattr(connection, "MAX_WAITING", 1 << 16)
    site = Site(tmp_path / "snap")
    packed = (("Content-Encoding", "gzip"),)
    site.add("https://two.example/", gzip.compress(bytes(64 << 20), mtime=0), headers=packed, protocol="h2")
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority) as gateway,
        tunnel(gateway, "two.example", ("h2",)) as sock,
    ):
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        mine.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 27})
        mine.increment_flow_control_window(1 << 27)
        asked(mine, 1, "/")
        sock.sendall(mine.data_to_send())
        sock.settimeout(0.05)
        pings = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping" * 500

        def pinged_away() -> bool:
            with contextlib.suppress(OSError):
                sock.sendall(pings)
            return not gateway.stats.connections

        assert until(pinged_away)


@pytest.mark.parametrize("size", [18, 3_000_000])
def test_what_came_of_a_grpc_call_stands_behind_its_body(
    size: int, tmp_path: Path, authority: Authority
) -> None:
    site = Site(tmp_path / "snap")
    kind = ("content-type", "application/grpc+proto")
    status = (("x", "1"), ("grpc-status", "15"), ("grpc-message", "lost"))
    site.add("https://two.example/", b"x" * size, headers=(kind, *status), protocol="h2")
    site.add("https://two.example/none", b"", headers=(kind, *status), protocol="h2")
    site.add("https://two.example/old", b"x", headers=(kind,), protocol="h2")
    own = (("x-cost", "1"), ("Trailer", "grpc-status, x-cost"), ("grpc-status", "0"), ("x-cost", "2"))
    site.add("https://two.example/own", b"x" * size, headers=(kind, *own), protocol="h2")
    site.add("https://two.example/own-none", b"", headers=(kind, *own), protocol="h2")
    heads: dict[int, list[dict[str, str]]] = {1: [], 3: [], 5: [], 7: [], 9: []}
    got, ended = dict.fromkeys(heads, 0), 0
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority) as gateway,
        tunnel(gateway, "two.example", ("h2",)) as sock,
    ):
        mine = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        mine.initiate_connection()
        for stream, path in zip(heads, ("/", "/none", "/old", "/own", "/own-none"), strict=True):
            asked(mine, stream, path)
        while ended < 5:
            sock.sendall(mine.data_to_send())
            for event in mine.receive_data(sock.recv(1 << 16)):
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    heads[event.stream_id].append(dict(event.headers))
                elif isinstance(event, h2.events.DataReceived):
                    got[event.stream_id] += len(event.data)
                    mine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                ended += isinstance(event, h2.events.StreamEnded)
    assert (got[1], got[3], got[7], got[9]) == (size, 0, size, 0)
    (first, last), (alone,), (missed,), *apart = heads.values()
    for before, behind in apart:
        assert (before["x-cost"], behind) == ("1", {"grpc-status": "0", "x-cost": "2"})
        assert not before.keys() & {"trailer", "grpc-status"}
    assert last == dict(status[1:])
    assert first["x"] == "1"
    assert not first.keys() & last.keys()
    assert alone.items() >= dict(status).items()
    assert missed[":status"] == "504"
