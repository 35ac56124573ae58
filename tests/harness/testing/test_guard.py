"""Programs and libraries that know no block of sockets meet a proxy that refuses, and what they ask for is told."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from stillweb.harness.testing.blocking import Blocked
from stillweb.harness.testing.pytest_case import guarded
from tests.support.waiting import HANG, STARTS

ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=300)"


def program(url: str, **more: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", ASK, url], env={**os.environ, **more}, capture_output=True, timeout=STARTS
    )
    return done.returncode


def test_a_program_is_refused_and_told_of():
    before = dict(os.environ)
    threads = set(threading.enumerate())
    with Blocked() as blocked, guarded(blocked):
        assert program("http://outside.example/page?q=1") != 0
        assert program("https://outside.example/") != 0
    assert blocked.attempts == [
        "asking for GET http://outside.example/page?q=1",
        "asking for outside.example:443",
    ]
    assert dict(os.environ) == before
    assert set(threading.enumerate()) <= threads


def test_a_proxy_of_the_users_comes_back(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    with Blocked() as blocked, guarded(blocked):
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
        with Blocked([allow.format(port=port)]) as blocked, guarded(blocked):
            assert program(f"http://localhost:{port}/") == 0
        thread.join()
    assert blocked.attempts == []


def test_what_says_nothing_holds_up_no_other():
    with Blocked() as blocked, guarded(blocked):
        port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            assert program("http://outside.example/") != 0
    assert blocked.attempts == ["asking for GET http://outside.example/"]


def test_what_was_asked_last_of_all_counts_and_nothing_goes_on(monkeypatch):
    monkeypatch.setattr("stillweb.harness.testing.pytest_case._PATIENCE", 3600.0)
    threads = set(threading.enumerate())
    asking = []
    with Blocked() as blocked, guarded(blocked):
        port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
        for number in range(20):
            asking.append(socket.create_connection(("127.0.0.1", port)))
            if number:  # the first says nothing
                asking[-1].sendall(b"CONNECT outside.example:%d HTTP/1.1\r\n" % number)
    assert set(threading.enumerate()) <= threads
    for one in asking:
        one.close()
    assert sorted(blocked.attempts) == sorted(f"asking for outside.example:{n}" for n in range(1, 20))
