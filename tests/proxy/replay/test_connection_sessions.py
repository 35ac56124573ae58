"""Requests of several sessions over a single connection: each session keeps its own state."""

import base64
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.net.addresses import host_of
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.snapshot import Snapshot
from tests.proxy.frozen import Site
from tests.proxy.gateways import head, raw
from tests.support.waiting import HANG

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A page that a posted filter changes, recorded before and after it."""
    made = Site(tmp_path_factory.mktemp("workers") / "snap")
    made.add("https://site.example/", b"all")
    made.add("https://site.example/filter", b"ok", method="POST", request_headers=FORM, request_body=b"f=1")
    made.add("https://site.example/", b"some")
    made.add("http://plain.example/", b"plain")
    made.add("https://two.example/", b"two", protocol="h2")
    made.add("http://form.example/", b"all")
    made.add(FILTER, b"ok", method="POST", request_headers=FORM, request_body=b"f=1")
    made.add("http://form.example/", b"some")
    with made.open():
        pass
    return made


@pytest.fixture
def gateway(site: Site, authority: Authority, tmp_path: Path) -> Iterator[Gateway]:
    with (
        Snapshot.open(site.path) as snapshot,
        Ledger(tmp_path / "ledger.jsonl") as book,
        Gateway(snapshot, authority=authority, ledger=book, challenge=False) as running,
    ):
        yield running


def named(url: str, session: str, *, method: str = "GET", body: bytes = b"", more: str = "") -> bytes:
    """A request to a proxy as it goes over the wire."""
    name = base64.b64encode(f"{session}:x".encode()).decode()
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {url} HTTP/1.1\r\nHost: {host_of(url)}\r\nProxy-Authorization: Basic {name}\r\n{length}{more}\r\n"
    return head.encode() + body


LAST = "Connection: close\r\n"
FILTER = "http://form.example/filter"


def test_one_connection_may_be_of_several_sessions(site: Site, authority: Authority) -> None:
    """The answers come in order, whatever a packet holds."""
    form = "Content-Type: application/x-www-form-urlencoded\r\n"
    asked = [
        *(named("http://plain.example/", session) for session in "abcab"),
        named("http://form.example/", "a"),
        named(FILTER, "b", method="POST", body=b"f=1", more=form),
        named(FILTER, "c", method="POST", body=b"", more=f"{form}Transfer-Encoding: chunked\r\n") + b"3\r\nf=1\r\n0\r\n\r\n",
        named("http://form.example/", "b"),
        named("http://form.example/", "a"),
        b"GET /ca.pem HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ]  # fmt: skip
    last = named("http://form.example/", "c", more=LAST)
    with (
        Snapshot.open(site.path) as snapshot,
        Gateway(snapshot, authority=authority, challenge=False) as gateway,
    ):
        assert raw(gateway, b"".join(asked[:10]) + last).count(b" 200 OK") == 11
        for piece in asked[:10]:  # no packet more than needed
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as connection:
                connection.sendall(named("http://plain.example/", "d"))
                assert head(connection).startswith(b"HTTP/1.1 200 ")
                assert connection.recv(100) == b"plain"
                connection.sendall(piece)
                assert head(connection).startswith(b"HTTP/1.1 ")
        got = raw(gateway, named("http://plain.example/", "a") + asked[10])
        assert got.endswith(gateway.ca_path.read_bytes())
        assert gateway.stats.sessions == {"a": 9, "b": 8, "c": 5, "d": 10}


def test_a_long_first_request_is_read_in_order(gateway: Gateway) -> None:
    for size in (65_000, 100_000, 3_000_000):
        got = raw(gateway, named(FILTER, "long", method="POST", body=b"x" * size, more=LAST))
        assert got.startswith(b"HTTP/1.1 504 "), got
    assert gateway.stats.requests == 3
