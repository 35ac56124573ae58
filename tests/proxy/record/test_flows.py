"""The site of a request, TLS handshakes that a client broke off, and how failures are told."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from stillweb.proxy.net.addresses import with_host_field
from stillweb.proxy.record.flows import FailureLog, HostPlaces
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.gateways import drained
from tests.proxy.lab import Lab, tunnel
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG


@pytest.mark.parametrize(
    ("url", "host", "named"),
    [
        ("http://x.test/h", "b.test", "http://b.test/h"),
        ("http://x.test?q", "b.test:8080", "http://b.test:8080?q"),
        ("http://x.test:80/h", "X.test", None),
        ("http://x.test/", "x.test:81", None),
        ("http://x.test:81/", "x.test.", None),
        ("http://u:p@x.test/h?a=/@b", "x.test", None),
        ("http://[::1]:8/", "[::1]:8", None),
        ("http://x.test/", "a b", None),
        ("http://x.test/", None, None),
        ("http://x.test/", "stillweb.local", None),
        ("http://stillweb.local/", "x.test", None),
    ],
)
def test_names(url: str, host: str | None, named: str | None) -> None:
    assert with_host_field(url, host) == (named or url)


def ask(port: int, target: str, host: str, tunnel: str = "") -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as peer:
        if tunnel:
            peer.sendall(f"CONNECT {tunnel} HTTP/1.1\r\n\r\n".encode())
            while not peer.recv(1 << 16).endswith(b"\r\n\r\n"):
                pass
        peer.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return drained(peer).partition(b"\r\n\r\n")[2]


def site(asked: Asked) -> Answer:
    return Answer(body=f"{asked.header('host')} {asked.path}".encode())


def test_each_gets_its_own_whatever_the_order(lab: Lab, tmp_path: Path) -> None:
    asks = [
        ("http://x.test/h", "a.test"),
        ("http://x.test/h", "b.test"),
        ("http://x.test/h", "x.test"),
        ("/h", "c.test", "x.test:80"),
        ("http://d.test/h", "e.test", "x.test:80"),  # in a tunnel the target counts (RFC 9112, 3.2.2)
    ]
    with Origin(site) as origin, Writer.open(tmp_path / "s") as writer:
        place = {"x.test": ("127.0.0.1", origin.port)}
        with lab.recorder(writer, resolve=place) as recorder:
            came = [ask(recorder.port, *one) for one in asks]
            recorder.wait_quiet(seconds=0, timeout=HANG)
            assert recorder.failures == []
    assert came[:4] == [b"a.test /h", b"b.test /h", b"x.test /h", b"c.test /h"]
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot, authority=lab.ours) as gateway:
        assert [ask(gateway.port, *one) for one in reversed(asks)] == came[::-1]
        assert ask(gateway.port, "http://x.test/h", "f.test").startswith(
            b"stillweb: miss: GET http://f.test/h"
        )
        assert [(e["verdict"], e["ambiguous"]) for e in gateway.ledger][:5] == [("exact", False)] * 5
        assert [e["url"].split("/")[2] for e in gateway.ledger] == [f"{n}.test" for n in "dcxbaf"]


def test_two_places_under_one_name_are_told_once(lab: Lab, tmp_path: Path) -> None:
    with Origin(site) as one, Origin(site) as other, Writer.open(tmp_path / "s") as writer:
        places = {"new.test": ("127.0.0.1", one.port), "old.test": ("127.0.0.1", other.port)}
        with lab.recorder(writer, resolve=places) as recorder:
            for target in ("http://new.test/", "http://old.test/", "http://old.test/2"):
                ask(recorder.port, target, "new.test")
            recorder.wait_quiet(seconds=0, timeout=HANG)
            ((url, why),) = recorder.failures
    assert url == "http://new.test/"
    assert why.startswith("asked of new.test:80 and of old.test:80 ")


def test_the_addresses_of_a_name_are_one_place() -> None:
    places = HostPlaces()
    assert places.doubt("https://a.test", ("192.0.2.1", 443)) is None
    assert places.doubt("https://A.test", ("192.0.2.2", 443)) is None
    assert places.doubt("https://a.test", ("192.0.2.2", 8443)) is not None


def test_who_says_goodbye_within_a_handshake_wanted_nothing(lab: Lab, tmp_path: Path) -> None:
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


SECRET = "k9xq2vlm7prt4wzs8nbd1fgh"


@pytest.mark.parametrize("path", ["", "favicon.ico"])
def test_what_is_taken_back_may_name_a_secret_that_was_learned_since(path: str) -> None:
    redactor = Redactor(b"key")
    lost = FailureLog(redactor)
    url = f"https://{SECRET}.a.test/{path}"
    first = lost.add(url, "closed")
    redactor.learn(SECRET)
    second = lost.add(url, "closed")
    assert SECRET in first[0]
    assert SECRET not in second[0]
    lost.settle(first)
    assert [*lost.failures, *lost.errands] == [second]
