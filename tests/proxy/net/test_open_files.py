"""A machine's small limit of open files is no limit of the gateway's connections; one that stays is survived."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest

from stillweb.proxy.net import open_files
from tests.harness.small_site import make
from tests.proxy.gateways import head
from tests.support.command_line import Started, stillweb
from tests.support.waiting import HANG

_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.mark.slow
@pytest.mark.skipif(0 <= HARD < 1000, reason="this machine allows few open files")
def test_more_connections_than_the_limit_at_the_start(tmp_path: Path) -> None:
    started = Started("replay", make(tmp_path / "s"), limits={resource.RLIMIT_NOFILE: (128, HARD)})
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


def begun(sock: socket.socket) -> bytes:
    """An answer's first bytes, b"" if it was closed."""
    with contextlib.suppress(ConnectionResetError):
        return head(sock)[:12]
    return b""


@pytest.mark.slow
def test_a_process_that_may_open_no_more_loses_connections_not_itself(tmp_path: Path) -> None:
    started = Started("replay", make(tmp_path / "s"), limits={resource.RLIMIT_NOFILE: (128, 128)})
    port = int(started.line().rpartition(":")[2])
    request = b"GET http://a.test/none HTTP/1.1\r\nHost: a.test\r\n\r\n"
    with contextlib.ExitStack() as many:
        socks = [many.enter_context(socket.create_connection(("127.0.0.1", port), HANG)) for _ in range(150)]
        for sock in socks:
            sock.sendall(request)
        answers = [begun(sock) for sock in socks]
    # closed by the event loop, or told that the answer could not be looked up: no file was left for it
    assert set(answers) <= {b"HTTP/1.1 504", b"HTTP/1.1 500", b""}
    assert set(answers) != {b"HTTP/1.1 504"}
    deadline = time.monotonic() + HANG
    answer = b""
    while not answer and time.monotonic() < deadline:  # until the server has closed the others
        with socket.create_connection(("127.0.0.1", port), HANG) as sock:
            sock.sendall(request)
            answer = begun(sock)
    assert answer == b"HTTP/1.1 504"
    started.process.terminate()
    done = started.end()
    assert done.code == 0, done


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


URL = "http://127.0.0.1:9/"


@pytest.mark.parametrize("files", [6, 12, 40])
@pytest.mark.parametrize("words", [("replay", "SNAP", "--", "true"), ("record", "-o", "NEW", "--", "true")])
def test_too_few_files_are_told_in_a_line(tmp_path: Path, words: tuple[str, ...], files: int) -> None:
    """uvloop aborted the process, or a recording ended in a traceback, or hung."""
    check_refused(tmp_path, words, files)


@pytest.mark.parametrize(
    "words", [("mcp", "SNAP"), ("ls", "SNAP"), ("seal", "SNAP"), ("record", "-o", "NEW", URL)]
)
def test_so_by_every_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    check_refused(tmp_path, words, 12)


@pytest.mark.slow
def test_a_browser_needs_more(tmp_path: Path) -> None:
    check_refused(tmp_path, ("record", "-o", "NEW", URL), 110)


def check_refused(tmp_path: Path, words: tuple[str, ...], files: int) -> None:
    paths = {"SNAP": make(tmp_path / "s"), "NEW": tmp_path / "new"}
    done = stillweb(
        *(paths.get(word, word) for word in words),
        env={"STILLWEB_STATE": str(tmp_path)},
        limits={resource.RLIMIT_NOFILE: (files, files)},
    )
    assert (done.code, done.out) == (4, "")
    (line,) = done.err.splitlines()
    assert line.startswith("stillweb: error: too few files may be opened (")
    assert line.endswith("Raise the limit of open files (ulimit -n)")
