"""Several processes on one port: each session in one of them, one ledger, and nothing left behind."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.serving import ledger, workers
from stillweb.proxy.serving.gateway import Gateway
from stillweb.proxy.serving.ledger import Ledger
from stillweb.proxy.wire.addresses import host_of
from stillweb.proxy.wire.certificates import Authority
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.proxy.gateways import client, head, raw, tunnel
from tests.snapshots.making import record
from tests.support.waiting import HANG, until

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A page that a posted filter changes, recorded before and after it."""
    made = Site(tmp_path_factory.mktemp("workers") / "snap")
    made.add("https://site.example/", b"all")
    made.add("https://site.example/filter", b"ok", method="POST", request_headers=FORM, request_body=b"f=1")
    made.add("https://site.example/", b"some")
    made.add("http://plain.example/", b"plain")
    made.add("https://two.example/", b"two", protocol="h2")
    made.add("http://form.example/", b"all")
    made.add(FILTER, b"ok", method="POST", request_headers=FORM, request_body=b"f=1")
    made.add("http://form.example/", b"some")
    with made.open():
        pass
    return made


@pytest.fixture
def gateway(site: Site, authority: Authority, tmp_path: Path) -> Iterator[Gateway]:
    with (
        Snapshot.open(site.path) as snapshot,
        Ledger(tmp_path / "ledger.jsonl") as book,
        Gateway(snapshot, authority=authority, ledger=book, workers=2, challenge=False) as running,
    ):
        yield running


def walk(gateway: Gateway, name: str) -> list[str]:
    """Before and after the filter, each request on a connection of its own."""
    said = []
    for method, url, body in (
        ("GET", "https://site.example/", b""),
        ("POST", "https://site.example/filter", b"f=1"),
        ("GET", "https://site.example/", b""),
        ("GET", "http://plain.example/", b""),
        ("GET", "http://plain.example/none", b""),
    ):
        with client(gateway, name) as c:
            said.append(c.request(method, url, content=body, headers=dict(FORM) if body else {}).text[:14])
    return said


def test_sessions_keep_their_state_and_numbers(gateway: Gateway) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: walk(gateway, f"s{n}"), range(8)))
    assert found == [["all", "ok", "some", "plain", "stillweb: miss"]] * 8
    stats = gateway.stats
    assert (stats.requests, stats.misses) == (40, 8)
    assert stats.sessions == {f"s{n}": 5 for n in range(8)}
    entries = gateway.ledger.entries()
    for n in range(8):
        assert [e["seq"] for e in entries if e["session"] == f"s{n}"] == list(range(5))
    gateway.close()
    assert gateway.stats.requests == 40
    assert gateway.ledger.path is not None
    assert len(ledger.read(gateway.ledger.path)) == 40


def test_a_reset_reaches_the_right_process(gateway: Gateway) -> None:
    assert walk(gateway, "again")[:3] == ["all", "ok", "some"]
    gateway.reset("again")
    assert walk(gateway, "again")[:3] == ["all", "ok", "some"]


def test_own_pages_tell_of_all(gateway: Gateway) -> None:
    for n in range(4):
        walk(gateway, f"p{n}")
    with client(gateway, "reader") as c:
        status = c.get("http://stillweb.local/").json()
        assert c.get("http://stillweb.local/ca.pem").content == gateway.ca_path.read_bytes()
        assert len(c.get("http://stillweb.local/ledger").text.splitlines()) == 20
        assert c.get("http://plain.example/").text == "plain"  # from the same client, by a worker
    assert status["requests"] == 20


def test_http2_and_bad_requests(gateway: Gateway) -> None:
    with client(gateway, "h", http2=True) as c:
        answer = c.get("https://two.example/")
    assert (answer.http_version, answer.text) == ("HTTP/2", "two")
    assert raw(gateway, b"GET /\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def named(url: str, session: str, *, method: str = "GET", body: bytes = b"", more: str = "") -> bytes:
    """A request to a proxy as it goes over the wire."""
    name = base64.b64encode(f"{session}:x".encode()).decode()
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {url} HTTP/1.1\r\nHost: {host_of(url)}\r\nProxy-Authorization: Basic {name}\r\n{length}{more}\r\n"
    return head.encode() + body


LAST = "Connection: close\r\n"
FILTER = "http://form.example/filter"


def test_one_connection_may_be_of_several_sessions(site: Site, authority: Authority) -> None:
    """It goes to the process of each, with what was read of it already; the answers come in order."""
    form = "Content-Type: application/x-www-form-urlencoded\r\n"
    asked = [
        *(named("http://plain.example/", session) for session in "abcab"),
        named("http://form.example/", "a"),
        named(FILTER, "b", method="POST", body=b"f=1", more=form),
        named(FILTER, "c", method="POST", body=b"", more=f"{form}Transfer-Encoding: chunked\r\n") + b"3\r\nf=1\r\n0\r\n\r\n",
        named("http://form.example/", "b"),
        named("http://form.example/", "a"),
        b"GET /ca.pem HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ]  # fmt: skip
    last = named("http://form.example/", "c", more=LAST)
    ledgers = set()
    with Snapshot.open(site.path) as snapshot:
        for count in (1, 2, 3):
            with Gateway(snapshot, authority=authority, workers=count, challenge=False) as gateway:
                assert raw(gateway, b"".join(asked[:10]) + last).count(b" 200 OK") == 11
                for piece in asked[:10]:  # no packet more than needed
                    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as connection:
                        connection.sendall(named("http://plain.example/", "d"))
                        assert head(connection).startswith(b"HTTP/1.1 200 ")
                        assert connection.recv(100) == b"plain"
                        connection.sendall(piece)
                        assert head(connection).startswith(b"HTTP/1.1 ")
                got = raw(gateway, named("http://plain.example/", "a") + asked[10])
                assert got.endswith(gateway.ca_path.read_bytes())
                gateway.close()
                ledgers.add(gateway.ledger.hash())
    assert len(ledgers) == 1


def test_a_long_first_request_is_read_in_order(gateway: Gateway) -> None:
    for size in (65_000, 100_000, 3_000_000):
        got = raw(gateway, named(FILTER, "long", method="POST", body=b"x" * size, more=LAST))
        assert got.startswith(b"HTTP/1.1 504 "), got
    assert gateway.stats.requests == 3


def test_too_long_a_request_for_another_session_is_refused(gateway: Gateway) -> None:
    assert gateway._workers is not None
    other = next(f"n{n}" for n in range(9) if gateway._workers.of(f"n{n}") is not gateway._workers.of("a"))
    long = named("http://plain.example/", other, method="POST", body=b"x" * 200_000)
    got = raw(gateway, named("http://plain.example/", "a") + long)
    assert got.count(b"HTTP/1.1 200 ") == 1
    assert b"HTTP/1.1 400 " in got
    assert b"use one for each" in got
    assert gateway.stats.malformed == 1


def test_own_pages_on_a_connection_that_is_a_sessions(gateway: Gateway) -> None:
    for n in range(4):
        walk(gateway, f"k{n}")
    ask = named("http://plain.example/", "k0") + named("http://stillweb.local/", "k0")
    got = raw(gateway, ask)
    status = json.loads(got.rpartition(b"\r\n\r\n")[2])
    assert (status["requests"], status["processes"]) == (21, 2)
    ask = named("http://plain.example/", "k0") + named("http://stillweb.local/ledger", "k0")
    assert len(raw(gateway, ask).rpartition(b"\r\n\r\n")[2].splitlines()) == 22
    with tunnel(gateway, "stillweb.local") as sock:
        for host, code in ((b"stillweb.local", b"200"), (b"site.example", b"421")):
            with tunnel(gateway, "stillweb.local") as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host)
                assert head(sock).startswith(b"HTTP/1.1 " + code)
    with tunnel(gateway, "site.example") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: stillweb.local\r\nConnection: close\r\n\r\n")
        assert head(sock).startswith(b"HTTP/1.1 421 ")
    assert gateway.stats.requests == 22


def test_names_are_asked_for_by_every_process(site: Site, authority: Authority) -> None:
    with Snapshot.open(site.path) as snapshot, Gateway(snapshot, authority=authority, workers=2) as gateway:
        with client(gateway, None) as c:
            assert c.get("http://plain.example/").status_code == 200
        gateway.proxy_url("named")
        with client(gateway, None) as c:
            assert c.get("http://plain.example/").status_code == 407
            with pytest.raises(httpx.ProxyError):
                c.get("https://site.example/")


def test_the_hash_is_that_of_one_process(site: Site, authority: Authority) -> None:
    hashes = set()
    with Snapshot.open(site.path) as snapshot:
        for count in (1, 2):
            with Gateway(snapshot, authority=authority, workers=count, challenge=False) as gateway:
                with ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda n, g=gateway: walk(g, f"s{n}"), range(4)))
                gateway.close()
                hashes.add(gateway.ledger.hash())
    assert len(hashes) == 1


def test_processes_end_with_the_gateway(site: Site, authority: Authority) -> None:
    with Snapshot.open(site.path) as snapshot:
        with Gateway(snapshot, authority=authority, workers=2) as gateway:
            assert gateway._workers is not None
            pids = [w.process.pid for w in gateway._workers.all]
            with tunnel(gateway, "site.example"):
                pass
        assert all(not os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_worker_that_died_is_no_wrong_answer(site: Site, authority: Authority) -> None:
    heard: list[str] = []
    with Snapshot.open(site.path) as snapshot:
        gateway = Gateway(snapshot, authority=authority, workers=2, challenge=False, on_loss=heard.append)
        gateway.start()
        assert walk(gateway, "a")[0] == "all"
        assert gateway._workers is not None
        worker = gateway._workers.of("a")
        assert gateway.stats.requests == 5
        worker.process.kill()
        assert until(lambda: heard)
        with client(gateway, "a") as c:
            answer = c.get("http://plain.example/")
            assert (answer.status_code, answer.text.strip()) == (502, f"stillweb: {heard[0]}")
            with pytest.raises(httpx.ProxyError):
                c.get("https://site.example/")
        for name in "bcd":  # new ones go to those that are there
            assert walk(gateway, name)[0] == "all"
        for question in (gateway.missed, gateway.reset):
            with pytest.raises(MissingCapability, match="was killed by signal 9"):
                question("a")
        with client(gateway, "reader") as c:
            status = c.get("http://stillweb.local/").json()
        assert (status["failures"], status["requests"]) == (heard, 20)
        with pytest.raises(
            MissingCapability, match="process 1 of the gateway was killed by signal 9: its sess"
        ):
            gateway.close()


def test_a_ledger_that_workers_cant_write_is_told(site: Site, authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.touch()
    ledger = Ledger(path, fd=os.open(path, os.O_RDONLY))
    with Snapshot.open(site.path) as snapshot:
        gateway = Gateway(snapshot, authority=authority, workers=2, ledger=ledger, challenge=False)
        gateway.start()
        walk(gateway, "a")
        with client(gateway, "a") as c:
            assert "the ledger can't be written" in c.get("http://stillweb.local/").json()["ledger_error"]
        with pytest.raises(MissingCapability, match="ledger: the ledger can't be written: Bad file desc"):
            gateway.close()


def test_a_new_interpreter_serves_what_the_parent_has_open_or_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    made = Site(tmp_path / "s")
    made.add("http://plain.example/", b"plain")
    with made.open() as snapshot:
        with Gateway(snapshot, authority=authority, workers=2, challenge=False) as gateway:
            assert walk(gateway, "a")[3] == "plain"
        with Writer.open(made.path) as writer:
            record(writer, "http://plain.example/more", b"more")
        with pytest.raises(MissingCapability, match="the snapshot has changed since it was opened"):
            Gateway(snapshot, authority=authority, workers=2).start()


def test_no_more_processes_are_to_be_had(
    site: Site, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(workers, "spawn", refused)
    with Snapshot.open(site.path) as snapshot:
        gateway = Gateway(snapshot, authority=authority, workers=2)
        with pytest.raises(
            MissingCapability, match=r"another process can't be started: .*with one worker none"
        ):
            gateway.start()


def test_how_many_there_are_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, count in ((1, 1), (2, 2), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert workers.default_count() == count
    monkeypatch.setattr(workers, "supported", lambda: False)
    assert workers.default_count() == 1


def test_what_workers_cant_do(site: Site, authority: Authority) -> None:
    with Snapshot.open(site.path) as snapshot:
        with pytest.raises(UsageError):
            Gateway(snapshot, authority=authority, workers=0)
        with pytest.raises(UsageError):
            Gateway(snapshot, authority=authority, workers=2, virtual_hosts={"a": lambda r, s: None})  # type: ignore[dict-item,return-value,arg-type]
