"""Handshakes of web sockets that were refused while recording."""

from pathlib import Path

import pytest

from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.frozen import Site
from tests.proxy.gateways import raw


@pytest.mark.parametrize("page_first", [True, False])
def test_a_refused_handshake_is_refused_again_and_answers_no_page(tmp_path: Path, page_first: bool) -> None:
    """A server that gives no socket to strangers, or a proxy before it that knows none."""
    site, asks = (
        Site(tmp_path / "s"),
        (("Host", "h.example"), ("Connection", "Upgrade"), ("Upgrade", "websocket")),
    )

    def page(path: str) -> None:
        site.add(f"http://h.example{path}", b"a page", request_headers=(("Host", "h.example"),))

    if page_first:
        page("/both")
    for path in ("/both", "/socket"):
        site.add(
            f"http://h.example{path}", b"no socket", status=403, reason="Forbidden", request_headers=asks
        )
    if not page_first:
        page("/both")
    page("/page")
    with site.open() as snapshot, Gateway(snapshot) as gateway:

        def ask(path: str, *more: str) -> str:
            fields = ["Host: h.example", "Connection: close", *more, "", ""]
            got = raw(gateway, "\r\n".join([f"GET http://h.example{path} HTTP/1.1", *fields]).encode())
            return got.decode().split(" ", 2)[1]

        handshake = (
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        for _ in range(2):
            assert [ask(path, *handshake) for path in ("/both", "/socket", "/page")] == ["403", "403", "504"]
            assert [ask(path) for path in ("/both", "/socket", "/page")] == ["200", "504", "200"]
        entries = list(gateway.ledger)
        (why,) = {entry["why"] for entry in entries if "why" in entry}
        assert why.startswith("no web socket was recorded there")
        assert [entry["ambiguous"] for entry in entries] == [False] * len(entries)
