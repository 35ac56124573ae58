"""The network is blocked, whichever way a program takes, and free again after."""

import _socket
import os
import socket
import subprocess
import sys
import threading

import pytest

from stillweb.harness.testing import blocking
from stillweb.harness.testing.blocking import NetworkBlock, NetworkBlocked
from stillweb.harness.testing.pytest_case import refuse_proxies
from tests.support.waiting import HANG, STARTS

early = socket.getaddrinfo  # as `from socket import getaddrinfo` keeps it


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gethostbyname", ["outside.example"]),
        ("gethostbyname_ex", ["outside.example"]),
        ("gethostbyaddr", ["192.0.2.1"]),
        ("getnameinfo", [("192.0.2.1", 80), 0]),
    ],
)
def test_every_way_to_ask_for_a_name_is_blocked(name, given):
    before = getattr(socket, name)
    with (
        NetworkBlock() as blocked,
        pytest.raises(NetworkBlocked, match=r"looking up (outside\.example|192\.0\.2\.1)"),
    ):
        getattr(socket, name)(*given)
    assert len(blocked.attempts) == 1
    assert getattr(socket, name) is before


def test_servers_may_ask_for_their_own_name():
    with NetworkBlock() as blocked:
        assert socket.gethostbyname("localhost")
        assert socket.getfqdn("127.0.0.1")
        assert socket.getfqdn("0.0.0.0")
        assert socket.getnameinfo(("192.0.2.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    assert blocked.attempts == []


def test_blocking_is_undone_and_names_stay_free_for_this_machine():
    before = (socket.socket.connect, socket.getaddrinfo)
    with NetworkBlock() as outer, NetworkBlock(["127.0.0.1:1"]):
        with pytest.raises(NetworkBlocked, match=r"connecting to 192\.0\.2\.1:80"):
            socket.create_connection(("192.0.2.1", 80))
        with pytest.raises(NetworkBlocked, match=r"looking up outside\.example"):
            socket.getaddrinfo("outside.example", 80)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            with pytest.raises(NetworkBlocked):
                udp.sendto(b"x", ("192.0.2.1", 53))
            with pytest.raises(NetworkBlocked):
                udp.sendmsg([b"x"], [], 0, ("192.0.2.1", 53))
        assert socket.getaddrinfo("localhost", 80)
        left, right = socket.socketpair()
        left.close()
        right.close()
    assert len(outer.attempts) == 4
    assert (socket.socket.connect, socket.getaddrinfo) == before


@pytest.mark.parametrize("allowed", ["localhost", "LocalHost:{port}", "127.0.0.1:{port}"])
def test_an_allowed_name_lets_the_addresses_through_that_it_stands_for(allowed):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with NetworkBlock([allowed.format(port=port)]) as blocked:
            socket.create_connection(("localhost", port)).close()
            socket.create_connection((socket.gethostbyname("localhost"), port)).close()
            assert blocked.attempts == []
            with pytest.raises(NetworkBlocked):
                socket.create_connection(("127.0.0.2", port))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: _socket.socket().connect(("192.0.2.1", 80)),
        lambda: _socket.socket.connect_ex(socket.socket(), ("192.0.2.1", 80)),
        lambda: early("outside.example", 80),
        lambda: _socket.gethostbyname("outside.example"),
    ],
)
def test_what_is_below_the_module_socket_or_was_imported_before_is_blocked(ask):
    with NetworkBlock() as blocked, pytest.raises(NetworkBlocked):
        ask()
    assert len(blocked.attempts) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # workers of xdist have threads
def test_what_a_process_that_was_forked_off_tries_is_kept():
    with NetworkBlock() as blocked:
        child = os.fork()
        if child == 0:
            try:
                socket.create_connection(("192.0.2.1", 80))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert blocked.attempts == ["connecting to 192.0.2.1:80"]
    assert blocked.attempts == ["connecting to 192.0.2.1:80"]


def test_a_connection_to_another_machine_that_was_open_before_is_not_sent_on(monkeypatch):
    # this machine stands for the other one
    monkeypatch.setattr(blocking, "is_loopback", lambda host: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as kept, server.accept()[0] as other:
            other.settimeout(0.05)
            with NetworkBlock() as blocked:
                for send in (kept.send, kept.sendall, lambda data: kept.sendmsg([data])):
                    with pytest.raises(NetworkBlocked, match="on a connection that was open before"):
                        send(b"x")
            with pytest.raises(TimeoutError):
                other.recv(1)
            assert len(blocked.attempts) == 3
            with NetworkBlock([f"127.0.0.1:{port}"]):
                kept.sendall(b"x")
            assert other.recv(1) == b"x"


def test_a_connection_within_this_machine_may_go_on():
    """A debugger's, say, or that of a test runner."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as kept,
        NetworkBlock() as blocked,
    ):
        kept.sendall(b"x")
    assert blocked.attempts == []


def test_threads_are_held_too():
    def ask():
        with pytest.raises(NetworkBlocked):
            socket.create_connection(("192.0.2.1", 80))

    with NetworkBlock() as blocked:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert blocked.attempts == ["connecting to 192.0.2.1:80"]


ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=300)"


def program(url: str, **more: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", ASK, url], env={**os.environ, **more}, capture_output=True, timeout=STARTS
    )
    return done.returncode


def test_a_program_is_refused_and_told_of():
    before = dict(os.environ)
    threads = set(threading.enumerate())
    with NetworkBlock() as blocked, refuse_proxies(blocked):
        assert program("http://outside.example/page?q=1") != 0
        assert program("https://outside.example/") != 0
    assert blocked.attempts == [
        "asking for GET http://outside.example/page?q=1",
        "asking for outside.example:443",
    ]
    assert dict(os.environ) == before
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(
    "url", ["http://update.googleapis.com/service/update2/json", "https://accounts.google.com/"]
)
def test_a_browsers_own_errands_are_refused_and_fail_no_test(url):
    with NetworkBlock() as blocked, refuse_proxies(blocked):
        assert program(url) != 0
    assert blocked.attempts == []


def test_a_proxy_of_the_users_comes_back(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    with NetworkBlock() as blocked, refuse_proxies(blocked):
        assert "proxy.example" not in os.environ["http_proxy"]
    assert os.environ["http_proxy"] == "http://proxy.example:3128"


@pytest.mark.parametrize("allow", ["loopback", "127.0.0.1:{port}", "localhost:{port}"])
def test_what_is_allowed_is_not_led_there(allow):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve():
            client = server.accept()[0]
            with client:
                client.settimeout(HANG)
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with NetworkBlock([allow.format(port=port)]) as blocked, refuse_proxies(blocked):
            assert program(f"http://localhost:{port}/") == 0
        thread.join()
    assert blocked.attempts == []


def test_what_says_nothing_holds_up_no_other():
    with NetworkBlock() as blocked, refuse_proxies(blocked):
        port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            assert program("http://outside.example/") != 0
    assert blocked.attempts == ["asking for GET http://outside.example/"]


def test_what_was_asked_last_of_all_counts_and_nothing_goes_on(monkeypatch):
    monkeypatch.setattr("stillweb.harness.testing.pytest_case._PATIENCE", 3600.0)
    threads = set(threading.enumerate())
    asking = []
    with NetworkBlock() as blocked, refuse_proxies(blocked):
        port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
        for number in range(20):
            asking.append(socket.create_connection(("127.0.0.1", port)))
            if number:  # the first says nothing
                asking[-1].sendall(b"CONNECT outside.example:%d HTTP/1.1\r\n" % number)
    assert set(threading.enumerate()) <= threads
    for one in asking:
        one.close()
    assert sorted(blocked.attempts) == sorted(f"asking for outside.example:{n}" for n in range(1, 20))
