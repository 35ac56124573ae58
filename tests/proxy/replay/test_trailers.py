"""Trailers stand behind the body again, where there is a place for them."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.proxy.gateways import raw
from tests.proxy.lab import Lab
from tests.support.waiting import HANG

SIZES = [0, 18, 3_000_000]
SUM = (("Trailer", "X-Sum"), ("X-Sum", "abc"))


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


@pytest.fixture
def gateway(size: int, tmp_path: Path, authority: Authority) -> Iterator[Gateway]:
    site = Site(tmp_path / "snap")
    site.add("http://a.test/", b"x" * size, headers=(("Content-Type", "text/plain"), SUM[0], *SUM))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway:
        yield gateway


def asked(gateway: Gateway, line: str, more: str = "") -> tuple[dict[str, str], bytes]:
    """The last head and what comes behind it until the connection ends; the same was asked once before."""
    keep = f"{line} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n" if "1.0" not in line else ""
    last = f"{line}{'' if '1.0' in line else ' HTTP/1.1'}\r\nHost: a.test\r\n{more}Connection: close\r\n\r\n"
    head, _, body = raw(gateway, (keep + last).encode()).rpartition(b"HTTP/1.")[2].partition(b"\r\n\r\n")
    fields = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return {name.lower(): value for name, value in fields}, body


def test_behind_chunks(gateway: Gateway, size: int) -> None:
    for _ in range(3):  # as a settled request, too
        head, body = asked(gateway, "GET http://a.test/")
        assert (head["trailer"], head["transfer-encoding"]) == ("X-Sum", "chunked")
        assert not head.keys() & {"content-length", "x-sum"}
        assert body.endswith(b"0\r\nX-Sum: abc\r\n\r\n")
        assert body.count(b"x") == size


def test_http10_has_no_place_for_them(gateway: Gateway, size: int) -> None:
    head, body = asked(gateway, "GET http://a.test/ HTTP/1.0")
    assert body == b"x" * size
    assert not head.keys() & {"transfer-encoding", "x-sum"}


@pytest.mark.parametrize(("method", "more"), [("HEAD", ""), ("GET", "Range: bytes=1-4\r\n")])
def test_of_less_than_the_whole_nothing_is_said(gateway: Gateway, method: str, more: str) -> None:
    head, body = asked(gateway, f"{method} http://a.test/", more)
    assert b"abc" not in body
    assert not head.keys() & {"trailer", "transfer-encoding", "x-sum"}


@pytest.mark.parametrize("told", ["", "Trailer: X-Sum\r\n"])
def test_from_an_origin_to_a_client(told: str, lab: Lab, tmp_path: Path, authority: Authority) -> None:
    tail = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Time: 5\r\n\r\n"
    ask = b"GET http://sum.example/ HTTP/1.1\r\nHost: sum.example\r\nConnection: close\r\n\r\n"

    def speak(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        peer.sendall(f"HTTP/1.1 200 OK\r\n{told}".encode() + tail)

    with lab.between(tmp_path / "s", "sum.example", speak) as (_, peer), closing(peer):
        peer.settimeout(HANG)
        peer.sendall(ask)
        live = b""
        while piece := peer.recv(1 << 16):
            live += piece
    with Writer.open(tmp_path / "s"):
        pass
    with Site(tmp_path / "s").open() as snapshot, Gateway(snapshot, authority=authority) as gateway:
        again = raw(gateway, ask)
    assert live.endswith(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Time: 5\r\n\r\n")
    assert again.partition(b"\r\n\r\n")[2] == live.partition(b"\r\n\r\n")[2]
    assert (b"\r\nTrailer: X-Sum\r\n" in again) == bool(told)
