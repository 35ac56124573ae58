"""A proxy that is spoken to by TLS, as wget2 does, answers as it does without, also within tunnels."""

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.gateways import BIG, PAGE
from tests.support.waiting import HANG, until


def fetch(gateway: Gateway, url: str, path: Path, *more: str) -> bytes:
    ca = str(gateway.ca_path)
    proxy = f"https://entrance:x@127.0.0.1:{gateway.port}"
    words = [
        "curl",
        "-sS",
        "-m",
        str(int(HANG)),
        "-x",
        proxy,
        "--proxy-cacert",
        ca,
        "--cacert",
        ca,
        *more,
        url,
    ]
    subprocess.run([*words, "-o", str(path)], check=True)
    return path.read_bytes()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize(
    ("url", "body", "more"),
    [
        ("http://site.example/plain?b=2&a=1", b"plain", ()),
        ("https://site.example/", PAGE, ()),
        ("https://site.example/big", BIG, ()),
        ("https://two.example/", PAGE, ("--http2",)),
    ],
)
def test_what_is_asked_through_it_is_answered(
    gateway: Gateway, url: str, body: bytes, more: tuple[str, ...], tmp_path: Path
) -> None:
    assert fetch(gateway, url, tmp_path / "got", *more) == body
    (*_, last) = [e for e in gateway.ledger.entries() if e["session"] == "entrance"]
    assert (last["url"], last["verdict"]) == (url, "exact")


def test_a_handshake_that_fails_is_told(gateway: Gateway) -> None:
    before = gateway.stats.malformed
    with (
        socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(sock, server_hostname="127.0.0.1")
    assert until(lambda: gateway.stats.malformed == before + 1)
    told = [e["why"] for e in gateway.ledger.entries() if e["url"] == "?"]
    assert "refused: TLS with the proxy itself failed" in told[-1]


def test_what_is_left_open_ends(gateway: Gateway) -> None:
    context = ssl.create_default_context(cafile=gateway.ca_path)
    before = gateway.stats.connections
    with (
        socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as within,
    ):
        within.sendall(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert within.recv(1 << 16).startswith(b"HTTP/1.1 ")
        assert until(lambda: gateway.stats.connections > before)
    assert until(lambda: gateway.stats.connections == before)
