"""Sessions and hosts in addresses, open files, and the Huffman code of HTTP/2."""

import base64
import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest
from hpack.huffman_table import decode_huffman
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.net import open_files
from stillweb.proxy.net.addresses import host_port, public, session_name, site_named, with_session
from stillweb.proxy.net.huffman import LinearHuffman
from stillweb.snapshots.errors import UsageError
from tests.harness.small_site import make
from tests.proxy.gateways import head
from tests.support.command_line import Started, stillweb
from tests.support.waiting import HANG

NAMES = st.text(min_size=1).filter(
    lambda name: name.isprintable() and name == name.strip() and not set(name) & set(":%")
)


@given(NAMES)
def test_a_session_is_read_back_from_what_a_client_sends(name: str) -> None:
    address = with_session("http://[::1]:8080", name)
    user, _, place = address.removeprefix("http://").rpartition("@")
    assert place == "[::1]:8080"
    assert session_name(f"Basic {base64.b64encode(user.encode()).decode()}") == name


@pytest.mark.parametrize("name", ["", " a", "a\n", "a:b", "a%b"])
def test_names_that_no_client_could_send(name: str) -> None:
    with pytest.raises(UsageError, match="can't be a session's name"):
        with_session("http://127.0.0.1:8080", name)


def test_hosts_with_ports() -> None:
    assert host_port("127.0.0.1", 80) == "127.0.0.1:80"
    assert host_port("::1", 80) == "[::1]:80"


def test_what_is_told_of_an_address_holds_its_secrets_only_where_they_are_recorded_as_they_are() -> None:
    class Masks:
        def url(self, url: str) -> str:
            return url.replace("secret", "x")

    assert public("https://a.test/?key=secret", Masks()) == "https://a.test/?key=x"
    assert public("https://a.test/?key=secret", None) == "https://a.test/?key=secret"


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("x.test", "x.test"),
        ("x.test:81", "x.test:81"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("proxy.test:8899", ""),  # our port: whatever name we have
        ("localhost:9000", ""),  # and whatever port leads to us
        ("127.0.0.1", ""),
        ("[::1]:1", ""),
        ("stillweb.local", ""),
        ("x test", ""),
        (None, ""),
    ],
)
def test_the_site_of_a_request_for_a_mere_path(host: str | None, site: str) -> None:
    assert site_named(host, 8899) == site


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


def test_the_example_of_rfc_7541_is_written_as_there() -> None:
    assert LinearHuffman().encode(b"www.example.com").hex() == "f1e3c2e5f23a6ba0ab90f4ff"


@given(st.binary(max_size=400))
def test_what_was_written_is_read_again(value: bytes) -> None:
    assert decode_huffman(LinearHuffman().encode(value)) == value
