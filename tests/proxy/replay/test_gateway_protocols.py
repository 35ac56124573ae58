"""The gateway speaks what clients speak: HTTP/2, pipelines, tunnels, half-closed connections."""

import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
import requests

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.hub import recorded_protocols
from stillweb.snapshots import Exchange, Snapshot, Writer
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.proxy.gateways import BIG, PAGE, client, drained, head, raw, tunnel
from tests.support.waiting import HANG, STARTS
from tests.support.walks import START


def test_http2_is_spoken_where_it_was_recorded(gateway: Gateway) -> None:
    with client(gateway, http2=True) as c:
        two, one = c.get("https://two.example/"), c.get("https://site.example/")
        posted = c.post("https://two.example/form", data={"q": "x" * 200_000})
        missed = c.get("https://two.example/none")
    assert (two.http_version, two.content) == ("HTTP/2", PAGE)
    assert (one.http_version, one.content) == ("HTTP/1.1", PAGE)
    assert (posted.content, missed.status_code) == (b"posted", 504)
    with client(gateway) as c:
        assert c.get("https://two.example/").http_version == "HTTP/1.1"


def test_many_streams_on_one_http2_connection(gateway: Gateway) -> None:
    import asyncio

    async def run() -> list[bytes]:
        context = ssl.create_default_context(cafile=gateway.ca_path)
        async with httpx.AsyncClient(
            proxy=gateway.url, verify=context, http2=True, trust_env=False, timeout=HANG
        ) as c:
            answers = await asyncio.gather(
                *[c.get(f"https://two.example/{'big' if n % 10 == 0 else ''}") for n in range(40)]
            )
        return [a.content for a in answers]

    found = asyncio.run(run())
    assert [body == (BIG if n % 10 == 0 else PAGE) for n, body in enumerate(found)] == [True] * 40


def test_curl_and_requests(gateway: Gateway) -> None:
    out = subprocess.run(
        ["curl", "-sS", "--compressed", "--proxy", gateway.url, "--cacert", str(gateway.ca_path),
         "https://site.example/packed", "https://two.example/", "http://site.example/plain?a=1&b=2"],
        capture_output=True, check=True, timeout=STARTS,
    )  # fmt: skip
    assert out.stdout == PAGE + PAGE + b"plain"
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": gateway.url, "https": gateway.url}
        session.verify = str(gateway.ca_path)
        assert session.get("https://site.example/packed", timeout=HANG).content == PAGE
        assert session.get("https://site.example/big", timeout=HANG).content == BIG


def test_pipelined_requests_are_answered_in_order(gateway: Gateway) -> None:
    with tunnel(gateway, "site.example") as sock:
        one = b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
        big = b"GET /big HTTP/1.1\r\nHost: site.example\r\n\r\n"
        last = b"GET /none HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n"
        sock.sendall(one + big + one + big + last)
        got = drained(sock)
    assert got.count(b"HTTP/1.1 200 OK") == 4
    assert got.count(BIG) == 2
    assert got.rindex(BIG) < got.index(b"HTTP/1.1 504")


def test_a_body_in_chunks_after_100_continue(gateway: Gateway) -> None:
    with tunnel(gateway, "forms.example", session="chunks") as sock:
        sock.sendall(
            b"POST /form HTTP/1.1\r\nHost: forms.example\r\nExpect: 100-continue\r\nConnection: close\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert head(sock) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n")
        assert drained(sock).startswith(b"HTTP/1.1 303 See Other")


def test_http_1_0_gets_a_closed_connection(gateway: Gateway) -> None:
    got = raw(gateway, b"GET http://site.example/plain?a=1&b=2 HTTP/1.0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in got
    assert got.endswith(b"\r\n\r\nplain")


def test_tls_bytes_that_come_together_with_the_connect(gateway: Gateway) -> None:
    context = ssl.create_default_context(cafile=gateway.ca_path)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    layer = context.wrap_bio(inward, outward, server_hostname="site.example")
    with pytest.raises(ssl.SSLWantReadError):
        layer.do_handshake()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        sock.sendall(b"CONNECT site.example:443 HTTP/1.1\r\nHost: site.example:443\r\n\r\n" + outward.read())
        assert head(sock).startswith(b"HTTP/1.1 200 ")
        rest, done = b"", False
        while not done:
            inward.write(rest)
            try:
                layer.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                rest = sock.recv(1 << 16)


def test_plain_http_in_a_tunnel_and_an_address_of_version_6(gateway: Gateway) -> None:
    got = raw(
        gateway,
        b"CONNECT site.example:80 HTTP/1.1\r\n\r\n",
        more=(b"GET /plain?a=1&b=2 HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n",),
    )
    assert got.endswith(b"plain")
    with client(gateway) as c:
        assert c.get("https://[::1]:8443/six").content == b"six"


def test_a_client_that_has_shut_its_side_is_still_answered(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        sock.sendall(b"GET http://made.example/slow HTTP/1.1\r\nHost: made.example\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert drained(sock).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_reads_slowly_gets_everything_and_blocks_nobody(gateway: Gateway) -> None:
    with tunnel(gateway, "site.example") as slow, client(gateway) as c:
        slow.sendall(b"GET /big HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n" * 1)
        assert slow.recv(1) == b"H"  # it is being answered, and is more than all the buffers hold
        assert c.get("https://site.example/").content == PAGE
        assert drained(slow).endswith(BIG)


def test_http2_is_spoken_where_many_plain_captures_come_first(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for number in range(300):
            url = f"http://mixed.example/a{number:03d}"
            writer.exchange(Exchange(Request("GET", url), 200, "OK", (), b"plain", START))
        secure = Request("GET", "https://mixed.example/z")
        writer.exchange(Exchange(secure, 200, "OK", (), b"secure", START, protocol="h2"))
    with Snapshot.open(tmp_path / "site") as snapshot:
        assert recorded_protocols(snapshot, "mixed.example") == ("h2", "http/1.1")
        assert recorded_protocols(snapshot, "other.example") == ("http/1.1",)


@pytest.mark.parametrize("zone", ["%eth0", "%25eth0"])  # as Go writes it, and as RFC 6874 does
def test_a_tunnel_to_an_address_with_a_zone(zone: str, tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    place = f"[fe80::1{zone}]"
    site.add(f"https://{place}/", b"safe")
    site.add(f"http://{place}:80/", b"plain")
    context = ssl.create_default_context(cafile=authority.certificate_path)
    ask = f"GET / HTTP/1.1\r\nHost: {place}PORT\r\nConnection: close\r\n\r\n"
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway:
        for port, body in ((443, b"safe"), (80, b"plain")):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
                sock.sendall(f"CONNECT {place}:{port} HTTP/1.1\r\n\r\n".encode())
                assert head(sock).startswith(b"HTTP/1.1 200 ")
                if port == 443:
                    with context.wrap_socket(sock, server_hostname="fe80::1") as safe:
                        safe.sendall(ask.replace("PORT", "").encode())
                        assert drained(safe).endswith(body)
                else:
                    sock.sendall(ask.replace("PORT", ":80").encode())
                    assert drained(sock).endswith(body)
        assert {entry["verdict"] for entry in gateway.ledger} <= {"exact", "canonical"}


@pytest.mark.parametrize("at_once", [True, False])
def test_an_empty_line_too_many_after_a_connect(gateway: Gateway, at_once: bool) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        connect = b"CONNECT site.example:443 HTTP/1.1\r\n\r\n"
        sock.sendall(connect + b"\r\n" if at_once else connect)
        assert head(sock).startswith(b"HTTP/1.1 200 ")
        if not at_once:
            sock.sendall(b"\r\n")
        context = ssl.create_default_context(cafile=gateway.ca_path)
        with context.wrap_socket(sock, server_hostname="site.example") as safe:
            safe.sendall(b"GET / HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n")
            assert drained(safe).endswith(PAGE)
