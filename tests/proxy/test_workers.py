"""Several processes on one port: each session in one of them, one ledger, and nothing left behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from proxy import ledger
from proxy.certificates import Authority
from proxy.gateway import Gateway
from proxy.ledger import Ledger
from snapshots.errors import UsageError
from tests.proxy.frozen import Site
from tests.proxy.gateways import client, raw, tunnel
from tests.support.waiting import HANG, until

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.load_or_create(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A page that a posted filter changes, recorded before and after it."""
    made = Site(tmp_path_factory.mktemp("workers") / "snap")
    made.add("https://site.example/", b"all")
    made.add("https://site.example/filter", b"ok", method="POST", request_headers=FORM, request_body=b"f=1")
    made.add("https://site.example/", b"some")
    made.add("http://plain.example/", b"plain")
    made.add("https://two.example/", b"two", protocol="h2")
    with made.open():
        pass
    return made


@pytest.fixture
def gateway(site: Site, authority: Authority, tmp_path: Path) -> Iterator[Gateway]:
    from snapshots.snapshot import Snapshot

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


def test_http2_bad_requests_and_one_session_a_connection(gateway: Gateway) -> None:
    with client(gateway, "h", http2=True) as c:
        answer = c.get("https://two.example/")
    assert (answer.http_version, answer.text) == ("HTTP/2", "two")
    assert raw(gateway, b"\x16\x03\x01").startswith(b"HTTP/1.1 400 ")
    assert raw(gateway, b"GET /\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    one = (
        b"GET http://plain.example/ HTTP/1.1\r\nHost: plain.example\r\nProxy-Authorization: Basic %b\r\n\r\n"
    )
    got = raw(gateway, one % b"YTp4" + one % b"YTp4" + one % b"Yjp4")
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert b"one session" in got
    for _ in range(2):  # the second time what the first session asks for is remembered
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as connection:
            for name, said in ((b"YTp4", b"200 OK"), (b"Yjp4", b"one session")):
                connection.sendall(one % name)
                assert said in connection.recv(65536)


def test_names_are_asked_for_by_every_process(site: Site, authority: Authority) -> None:
    from snapshots.snapshot import Snapshot

    with Snapshot.open(site.path) as snapshot, Gateway(snapshot, authority=authority, workers=2) as gateway:
        with client(gateway, None) as c:
            assert c.get("http://plain.example/").status_code == 200
        gateway.proxy_url("named")
        with client(gateway, None) as c:
            assert c.get("http://plain.example/").status_code == 407
            with pytest.raises(httpx.ProxyError):
                c.get("https://site.example/")


def test_the_hash_is_that_of_one_process(site: Site, authority: Authority) -> None:
    from snapshots.snapshot import Snapshot

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
    from snapshots.snapshot import Snapshot

    with Snapshot.open(site.path) as snapshot:
        with Gateway(snapshot, authority=authority, workers=2) as gateway:
            assert gateway._workers is not None
            pids = [w.process.pid for w in gateway._workers.all]
            with tunnel(gateway, "site.example"):
                pass
        assert all(not os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_worker_that_died_is_no_wrong_answer(gateway: Gateway) -> None:
    assert walk(gateway, "a")[0] == "all"
    assert gateway._workers is not None
    worker = gateway._workers.of("a")
    worker.process.kill()
    worker.process.wait()
    with client(gateway, "a") as c, pytest.raises(httpx.HTTPError):
        c.get("http://plain.example/")
    other = next(f"b{n}" for n in range(20) if gateway._workers.of(f"b{n}") is not worker)
    assert walk(gateway, other)[0] == "all"
    assert until(lambda: gateway.stats.failures > 0)


def test_what_workers_cant_do(site: Site, authority: Authority) -> None:
    from snapshots.snapshot import Snapshot

    with Snapshot.open(site.path) as snapshot:
        with pytest.raises(UsageError):
            Gateway(snapshot, authority=authority, workers=0)
        with pytest.raises(UsageError):
            Gateway(snapshot, authority=authority, workers=2, virtual_hosts={"a": lambda r, s: None})  # type: ignore[dict-item,return-value,arg-type]
