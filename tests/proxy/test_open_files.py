"""A machine's small limit of open files is no limit of the gateway's connections."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from proxy import open_files
from tests.harness.small_site import make
from tests.proxy.gateways import head
from tests.support.command_line import Started
from tests.support.waiting import HANG

_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.mark.skipif(0 <= HARD < 1000, reason="this machine allows few open files")
def test_more_connections_than_the_limit_at_the_start(tmp_path: Path) -> None:
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, HARD))}
    started = Started("replay", make(tmp_path / "s"), **few)
    port = int(started.line().rpartition(":")[2])
    socks = []
    try:
        for _ in range(150):
            socks.append(socket.create_connection(("127.0.0.1", port), timeout=HANG))
        for sock in socks:
            sock.sendall(b"GET http://a.test/none HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert {head(sock)[:12] for sock in socks} == {b"HTTP/1.1 504"}
    finally:
        for sock in socks:
            sock.close()
        started.process.terminate()
        assert started.end().code == 0


@pytest.mark.parametrize(
    ("soft", "hard", "granted", "becomes"),
    [
        (1024, 4096, 1 << 20, 4096),
        (1024, 1 << 20, 1 << 20, 65536),
        (256, resource.RLIM_INFINITY, 1 << 20, 65536),
        (256, resource.RLIM_INFINITY, 10240, 10240),
        (256, resource.RLIM_INFINITY, 9999, 256),
        (4096, 4096, 1 << 20, 4096),
        (1 << 17, 1 << 20, 1 << 20, 1 << 17),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1 << 20, resource.RLIM_INFINITY),
        (20480, resource.RLIM_INFINITY, 10240, 20480),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_granted_and_never_lowered(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, granted: int, becomes: int
) -> None:
    now = [soft, hard]

    def set_(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > granted:
            raise ValueError("current limit exceeds maximum limit")
        now[:] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", set_)
    open_files.allow_many_open_files()
    assert now == [becomes, hard]
