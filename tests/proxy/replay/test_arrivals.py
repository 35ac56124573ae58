"""Bytes in a tunnel are read for what they are, also where the same bytes were answered as a request before."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.frozen import Site
from tests.proxy.gateways import head, tunnel

GET = b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
POST = b"POST /said HTTP/1.1\r\nHost: site.example\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def gateway(tmp_path: Path, authority: Authority) -> Iterator[Gateway]:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"home")
    plain = (("Content-Type", "text/plain"),)
    site.add("https://site.example/said", b"heard", method="POST", request_headers=plain, request_body=GET)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g:
        yield g


@pytest.fixture
def used(gateway: Gateway) -> Iterator[ssl.SSLSocket]:
    """A tunnel in which the page was asked for and answered a few times."""
    with tunnel(gateway, "site.example") as sock:
        for _ in range(4):
            sock.sendall(GET)
            assert answer(sock) == b"home"
        yield sock


def answer(sock: ssl.SSLSocket) -> bytes:
    """The body of the next answer."""
    fields = head(sock).lower().split(b"\r\n")
    left = next(int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:"))
    body = b""
    while len(body) < left and (piece := sock.recv(left - len(body))):
        body += piece
    return body


def test_a_body_of_the_bytes_of_a_request_is_a_body(gateway: Gateway, used: ssl.SSLSocket) -> None:
    used.sendall(POST % len(GET))
    used.sendall(GET)
    assert answer(used) == b"heard"
    assert [e["method"] for e in gateway.ledger.entries()] == ["GET"] * 4 + ["POST"]


def test_requests_in_pieces_and_several_at_once(gateway: Gateway, used: ssl.SSLSocket) -> None:
    for pieces in ((GET[:9], GET[9:]), (GET + GET[:20], GET[20:] + GET), (GET * 3,)):
        for piece in pieces:
            used.sendall(piece)
        assert [answer(used) for _ in range(b"".join(pieces).count(GET))] == [b"home"] * b"".join(
            pieces
        ).count(GET)
    used.sendall(GET.replace(b"/ ", b"/not-recorded "))
    assert answer(used).startswith(b"stillweb: miss")
    entries = gateway.ledger.entries()
    assert [e["seq"] for e in entries] == list(range(12))
    assert [e["verdict"] for e in entries] == ["exact"] * 11 + ["miss"]


def test_what_follows_a_goodbye_of_tls_is_not_answered(gateway: Gateway, used: ssl.SSLSocket) -> None:
    used.sendall(GET)
    assert answer(used) == b"home"
    used.unwrap().close()
    assert len(gateway.ledger.entries()) == 5
