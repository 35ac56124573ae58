"""The network is blocked, whichever way a program takes, and free again after."""

import socket

import pytest

from harness.testing.blocking import Blocked, NetworkBlocked


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
        Blocked() as blocked,
        pytest.raises(NetworkBlocked, match=r"looking up (outside\.example|192\.0\.2\.1)"),
    ):
        getattr(socket, name)(*given)
    assert len(blocked.attempts) == 1
    assert getattr(socket, name) is before


def test_servers_may_ask_for_their_own_name():
    with Blocked() as blocked:
        assert socket.gethostbyname("localhost")
        assert socket.getfqdn("127.0.0.1")
        assert socket.getfqdn("0.0.0.0")
        assert socket.getnameinfo(("192.0.2.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    assert blocked.attempts == []


def test_blocking_is_undone_and_names_stay_free_for_this_machine():
    before = (socket.socket.connect, socket.getaddrinfo)
    with Blocked() as outer, Blocked(["127.0.0.1:1"]):
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
        with Blocked([allowed.format(port=port)]) as blocked:
            socket.create_connection(("localhost", port)).close()
            socket.create_connection((socket.gethostbyname("localhost"), port)).close()
            assert blocked.attempts == []
            with pytest.raises(NetworkBlocked):
                socket.create_connection(("127.0.0.2", port))
