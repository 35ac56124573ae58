"""A malformed request, archive or port is told in one line, and the gateway stays up."""

import contextlib
import gzip
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.proxy.frozen import Site
from tests.proxy.gateways import BIG, HTML, client, drained, raw, tunnel
from tests.support.waiting import HANG


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03",
        b"GET /\r\n\r\n",
        b"GET nowhere HTTP/1.1\r\n\r\n",
        b"CONNECT nowhere/x HTTP/1.1\r\n\r\n",
        b"CONNECT a:99999 HTTP/1.1\r\n\r\n",
        b"POST http://a/ HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_a_400_and_a_closed_connection(gateway: Gateway, data: bytes) -> None:
    got = raw(gateway, data)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in got


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n",
        b"\0\0",
    ],
)
def test_the_same_inside_a_tunnel(gateway: Gateway, data: bytes) -> None:
    with tunnel(gateway, "site.example") as sock:
        sock.sendall(data)
        assert drained(sock).startswith(b"HTTP/1.1 400 ")


@settings(max_examples=60)
@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(
    [b"GET http://site.example/plain?a=1&b=2 HTTP/1.1\r\n", b"CONNECT site.example:443 HTTP/1.1\r\n\r\n", b"\r\n",
     b"Host: x\r\n", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\x16\x03\x01\x00\x05abcde"])), max_size=6))  # fmt: skip
def test_whatever_is_sent_the_gateway_stays_up(gateway: Gateway, pieces: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        for piece in pieces:
            try:
                sock.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        drained(sock)
    assert raw(gateway, b"GET http://site.example/plain?a=1&b=2 HTTP/1.0\r\n\r\n").endswith(b"plain")


def test_a_port_in_use_and_wrong_settings(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(MissingCapability, match=f"port {gateway.port} on 127.0.0.1 is in use"):
        Gateway(gateway.snapshot, port=gateway.port, authority=authority).start()
    with pytest.raises(UsageError, match="accept"):
        Gateway(gateway.snapshot, accept="anything", authority=authority)
    with pytest.raises(UsageError, match="listen"):
        Gateway(gateway.snapshot, host="no such host", authority=authority).start()


def test_a_damaged_archive_is_no_empty_page(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x" * 1000)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g:
        (file,) = (tmp_path / "snap" / "archive").glob("*.warc.gz")
        data = bytearray(file.read_bytes())
        data[-200:] = bytes(200)
        offset = next(snapshot.captures()).offset
        data[offset : offset + 20] = bytes(20)
        with open(file, "r+b") as out:
            out.write(data)
        with client(g) as c:
            answer = c.get("http://site.example/")
            headers = c.head("http://site.example/").headers
        assert (answer.status_code, answer.headers["stillweb-verdict"]) == (502, "miss")
        assert headers["stillweb-verdict"] == "miss"
        told = g.ledger.entries()
        assert [e["status"] for e in told] == [502, 502]
        assert all("can't be read" in e["why"] for e in told)


def test_a_large_body_that_is_not_what_its_encoding_says_comes_as_it_came(
    tmp_path: Path, authority: Authority
) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", BIG, headers=(HTML, ("Content-Encoding", "gzip")))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g) as c:
        with c.stream("GET", "http://site.example/", headers={"Accept-Encoding": "identity"}) as answer:
            assert b"".join(answer.iter_raw()) == BIG
        assert [e["verdict"] for e in g.ledger.entries()] == ["exact"]


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_codings_in_several_lines_are_all_undone(size: int, tmp_path: Path, authority: Authority) -> None:
    body = BIG[:size]
    packed = gzip.compress(gzip.compress(body, mtime=0), mtime=0)
    site = Site(tmp_path / "snap")
    gzipped = ("Content-Encoding", "gzip")
    site.add("http://twice.example/", packed, headers=(gzipped, HTML, gzipped))
    plain = {"Accept-Encoding": "identity"}
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway, client(gateway) as c:
        for headers in (plain, {}):
            answer = c.get("http://twice.example/", headers=headers)
            assert answer.content == body
            assert ("content-encoding" in answer.headers) == (headers is not plain)


def test_a_url_that_none_can_parse_is_a_miss_with_its_ledger_line(gateway: Gateway) -> None:
    seen = len(gateway.ledger.misses())
    assert raw(gateway, b"GET http://[zz/ HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 504 ")
    assert gateway.ledger.misses()[seen]["url"] == "http://[zz/"


def test_a_body_that_was_cut_at_the_origin_still_gets_an_answer_and_a_ledger_line(
    tmp_path: Path, authority: Authority
) -> None:
    broken = gzip.compress(BIG, mtime=0)[:-500_000]
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", broken, headers=(HTML, ("Content-Encoding", "gzip")))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g) as c:
        none = {"Accept-Encoding": "identity"}
        with c.stream("GET", "http://site.example/", headers={**none, "Range": "bytes=0-3"}) as part:
            assert (part.status_code, part.headers["content-encoding"]) == (206, "gzip")
            assert b"".join(part.iter_raw()) == broken[:4]
        head = c.head("http://site.example/", headers=none)
        assert (head.status_code, head.headers["content-length"]) == (200, str(len(broken)))
        assert [e["verdict"] for e in g.ledger.entries()] == ["exact", "exact"]
