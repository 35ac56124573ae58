"""Browsers told from other clients by their TLS handshake."""

import ssl

import pytest

from stillweb.proxy.replay.connection import browser

SUITES = [0x1301, 0xC02B, 0x000A, 0x0A1A]  # those of RFC 8701 have the same byte twice


def hello(suites: list[int], session: bytes = b"s" * 32) -> bytes:
    named = b"".join(suite.to_bytes(2, "big") for suite in suites)
    body = (
        b"\3\3"
        + b"r" * 32
        + bytes([len(session)])
        + session
        + len(named).to_bytes(2, "big")
        + named
        + b"\1\0"
    )
    shake = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\3\1" + len(shake).to_bytes(2, "big") + shake


def test_chromium_is_the_same_whatever_it_draws() -> None:
    known = b"".join(suite.to_bytes(2, "big") for suite in SUITES)
    assert browser(hello([0x2A2A, *SUITES])) == known
    assert browser(hello([*SUITES, 0xFAFA], b"")) == known
    assert browser(hello([0x2A2A, *SUITES[:2]])) != known


@pytest.mark.parametrize(
    "data", [hello(SUITES), hello([]), hello([0x2A2A, *SUITES])[:80], b"\x16", b"", b"\x16" + b"\xff" * 200]
)
def test_what_is_no_browser_or_not_all_of_it(data: bytes) -> None:
    assert browser(data) == b""


def test_this_library_is_none() -> None:
    out = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="a.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    assert browser(out.read()) == b""
