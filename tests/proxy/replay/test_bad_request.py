"""A request that is refused as it comes is in the ledger, with why, in its session."""

import base64
import json
import socket
from pathlib import Path

import h2.connection
import pytest

from stillweb.harness.curation.missing import record_misses
from stillweb.proxy import Recorder
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay import connection, http2
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots import Snapshot, Writer
from tests.proxy.frozen import Site
from tests.proxy.gateways import drained, raw, tunnel
from tests.support.waiting import HANG, until

NAME = b"Proxy-Authorization: Basic " + base64.b64encode(b"refused:x") + b"\r\n"
SECRET = "sk-live-9f8e7d6c5b4a39281706f5e4d3c2b1a0"  # nothing that is one
BOTH = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"


def told(gateway: Gateway, session: str) -> list[tuple[str, str, int, str]]:
    entries = [entry for entry in gateway.ledger.entries() if entry["session"] == session]
    assert all(e["verdict"] == "miss" and e["key"] is None and e["capture"] is None for e in entries)
    assert [e["seq"] for e in entries] == list(range(len(entries)))
    return [(e["method"], e["url"], e["status"], e["why"]) for e in entries]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"GET nowhere HTTP/1.1\r\n%b\r\n", ("GET", "?", 400, "neither a URL nor a path")),
        (b"GET http://a/x y HTTP/1.1\r\n%b\r\n", ("?", "?", 400, "malformed request line")),
        (b"GET http://a/ HTTP/2.0\r\n%b\r\n", ("GET", "http://a/", 505, "only HTTP/1.0 and")),
        (b"GET http://a/ HTTP/1.1\r\n%bno colon\r\n\r\n", ("GET", "http://a/", 400, "header fields")),
        (b"GET http://a/ HTTP/1.1\r\n%bX: 1\r\n folded\r\n\r\n", ("GET", "http://a/", 400, "header fields")),
        (b"GET http://a/ HTTP/1.1\r\n%bHost: a\r\nHost: b\r\n\r\n", ("GET", "http://a/", 400, "two different Host")),
        (b"POST http://a/ HTTP/1.1\r\n%b" + BOTH + b"\r\n", ("POST", "http://a/", 400, "beside Content-Length")),
        (b"POST http://a/ HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nx\r\n", ("POST", "http://a/", 400, "malformed chunk")),
        (b"POST http://a/ HTTP/1.1\r\n%bTransfer-Encoding: gzip, chunked\r\n\r\n", ("POST", "http://a/", 501, "transfer coding")),
        (b"POST http://a/ HTTP/1.1\r\n%bExpect: tea\r\n\r\n", ("POST", "http://a/", 417, "expectation")),
        (b"POST http://a/ HTTP/1.1\r\n%bContent-Length: 99999999999\r\n\r\n", ("POST", "http://a/", 413, "too long")),
        (b"GET http://a/ HTTP/1.1\r\n%bX: " + b"x" * 140_000 + b"\r\n\r\n", ("GET", "http://a/", 431, "head of the request is too long")),
        (b"CONNECT nowhere/x HTTP/1.1\r\n%b\r\n", ("CONNECT", "https://nowhere/x/", 400, "CONNECT needs host:port")),
    ],
)  # fmt: skip
def test_outside_of_a_tunnel(
    data: bytes, line: tuple[str, str, int, str], tmp_path: Path, authority: Authority
) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://a/", b"here")
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway:
        answer = raw(gateway, data.replace(b"%b", NAME))
        assert answer.startswith(b"HTTP/1.1 %d " % line[2])
        assert until(lambda: gateway.stats.misses == 1)
        gateway.close()
        ((method, url, status, why),) = told(gateway, "refused" if b"%b" in data else "default")
        assert (method, url, status) == line[:3]
        assert line[3] in why


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"GET /x HTTP/1.1\r\n\r\n", ("GET", "https://site.example/x", "there is no Host field")),
        (b"GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n", ("GET", "https://site.example/x", "Host")),
        (b"CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n", ("CONNECT", "https://site.example/b:443", "tunnel within")),
        (b"\0\0", ("?", "https://site.example/", "not an HTTP request")),
    ],
)  # fmt: skip
def test_inside_a_tunnel(gateway: Gateway, data: bytes, line: tuple[str, str, str]) -> None:
    session = f"inside-{line[2].replace(' ', '-')}"
    with tunnel(gateway, "site.example", session=session) as sock:
        sock.sendall(data)
        assert drained(sock).startswith(b"HTTP/1.1 400 ")
    ((method, url, status, why),) = told(gateway, session)
    assert (method, url, status) == (*line[:2], 400)
    assert line[2] in why


def test_a_secret_in_its_address_is_masked(gateway: Gateway) -> None:
    name = base64.b64encode(b"masked:x")
    head = b"GET http://a/?api_key=%b HTTP/1.1\r\nProxy-Authorization: Basic %b\r\nno colon\r\n\r\n"
    assert raw(gateway, head % (SECRET.encode(), name)).startswith(b"HTTP/1.1 400 ")
    assert told(gateway, "masked")
    assert SECRET not in json.dumps(gateway.ledger.entries())


def test_our_own_pages_are_in_no_ledger(gateway: Gateway) -> None:
    before = len(gateway.ledger.entries())
    for start in (b"GET / HTTP/1.1", b"GET http://stillweb.local/ HTTP/1.1"):
        assert raw(gateway, start + b"\r\nno colon\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert len(gateway.ledger.entries()) == before


@pytest.mark.slow
def test_a_body_that_does_not_come(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, connection):
        monkeypatch.setattr(module, "PATIENCE", 1.0)  # in which what we send must be here
    start = b"POST http://a/ HTTP/1.1\r\n" + NAME.replace(b"refused", b"x") + b"Content-Length: 9\r\n\r\nhalf"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        sock.sendall(start.replace(NAME, b""))
        assert drained(sock).startswith(b"HTTP/1.1 408 ")
    assert gateway.ledger.entries()[-1]["status"] == 408
    before = len(gateway.ledger.entries())
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        sock.sendall(b"POST http://a/ HTTP/1.1\r\n")
        assert drained(sock).startswith(b"HTTP/1.1 408 ")
    assert len(gateway.ledger.entries()) == before  # nobody knows what it was to be


def asked_by_h2(gateway: Gateway, session: str, data: bytes) -> None:
    mine = h2.connection.H2Connection()
    mine.initiate_connection()
    head = {":method": "POST", ":scheme": "https", ":authority": "two.example", ":path": "/up"}
    mine.send_headers(1, list(head.items()))
    with tunnel(gateway, "two.example", ("h2",), session=session) as sock:
        sock.sendall(mine.data_to_send() + data)
        assert until(lambda: told(gateway, session))


def test_an_http2_connection_that_breaks_the_rules(gateway: Gateway) -> None:
    asked_by_h2(gateway, "h2-rules", b"\x00\x00\x08\x06\x00\x00\x00\x00\x01" + bytes(8))
    ((method, url, status, why),) = told(gateway, "h2-rules")
    assert (method, url, status) == ("CONNECT", "https://two.example/", 0)
    assert why.startswith("HTTP/2 with the client failed: ")


def test_too_long_a_body_over_http2(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_BODY", 10)
    asked_by_h2(gateway, "h2-body", b"\x00\x00\x0b\x00\x00\x00\x00\x00\x01" + b"x" * 11)
    assert told(gateway, "h2-body") == [
        ("POST", "https://two.example/up", 0, "refused: the body of the request is too long")
    ]


def test_it_is_not_sent_again_without_its_body(tmp_path: Path, authority: Authority) -> None:
    with Site(tmp_path / "snap").open() as snapshot, Gateway(snapshot, authority=authority) as gateway:
        raw(gateway, b"POST http://127.0.0.1:9/ HTTP/1.1\r\n" + BOTH + b"\r\nabc")
        entries = gateway.ledger.entries()
    said: list[str] = []
    with Writer.open(tmp_path / "more") as writer, Recorder(writer, authority=authority) as recorder:
        assert record_misses(recorder, entries, said.append) == (0, 1)
        assert recorder.stats.requests == 0
    assert len(said) == 1
    with Snapshot.open(tmp_path / "more") as snapshot:
        assert list(snapshot.captures()) == []
