"""Clients that break TLS off, and what is told of it."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab, tunnel
from tests.support.waiting import HANG


def test_who_says_goodbye_within_a_handshake_wanted_nothing(lab: Lab, tmp_path: Path) -> None:
    """aria2c opens more connections than it turns out to need: they were told as if it did not trust us."""
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname="demo.example"
        ).do_handshake()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            tunnel(peer, "demo.example:443")
            peer.sendall(hello.read() + b"\x15\x03\x03\x00\x02\x01\x00")  # an alert: close_notify
            while peer.recv(1 << 16):
                pass
        assert recorder.failures == []
