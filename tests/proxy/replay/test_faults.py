"""Faults in replay: what a client sees, what the ledger says, and that a seed decides all of it."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from wsproto.frame_protocol import FrameProtocol, Opcode

import stillweb
from stillweb.proxy.replay.faults import Faults
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site

PAGE = b"<title>A page</title><p>" + b"some words of a page " * 100
URL, H2 = "https://a.test/page", "https://h2.test/page"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "s"
    site = Site(path)
    for name in ("page", "other", "login"):
        site.add(f"https://a.test/{name}", PAGE, headers=(("Content-Type", "text/html"),))
    site.add(H2, PAGE, headers=(("Content-Type", "text/html"),), protocol="h2")
    with site.open():
        return path


@contextmanager
def served(snapshot: Path, *faults: dict[str, Any], seed: int = 1) -> Iterator[tuple[httpx.Client, Any]]:
    rules = {"seed": seed, "faults": [{"id": f"f{i}", **one} for i, one in enumerate(faults)]}
    with stillweb.replay(snapshot, faults=rules) as web, httpx.Client(**web.httpx(), timeout=10) as client:
        yield client, web.ledger


@pytest.mark.parametrize(
    ("fault", "status", "field"),
    [
        ({"status": 429, "retry_after": 7}, 429, ("Retry-After", "7")),
        ({"status": 503}, 503, ("Stillweb-Verdict", "fault:f0")),
        ({"login": True}, 401, ("WWW-Authenticate", 'Bearer error="invalid_token"')),
        ({"login": "/login"}, 302, ("Location", "/login")),
        ({"captcha": True}, 403, ("Content-Type", "text/html; charset=utf-8")),
    ],
)
def test_an_answer_in_place_of_the_recorded_one(
    snapshot: Path, fault: dict[str, Any], status: int, field: tuple[str, str]
) -> None:
    with served(snapshot, {**fault, "nth": 1}) as (client, ledger):
        first, second = client.get(URL), client.get(URL)
        assert (first.status_code, first.headers[field[0]]) == (status, field[1])
        assert (second.status_code, second.content) == (200, PAGE)
        assert [(e["verdict"], e["status"]) for e in ledger] == [("fault:f0", status), ("exact", 200)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"reset": True}, (httpx.ReadError, httpx.RemoteProtocolError)),
        ({"cut": 100}, (httpx.RemoteProtocolError,)),
        ({"cut": "50%"}, (httpx.RemoteProtocolError,)),
    ],
)
def test_a_broken_answer(snapshot: Path, fault: dict[str, Any], error: Any) -> None:
    with served(snapshot, {**fault, "nth": 1}) as (client, ledger):
        with pytest.raises(error):
            client.get(URL)
        assert client.get(URL).content == PAGE
        assert [e["verdict"] for e in ledger] == ["fault:f0", "exact"]


@pytest.mark.parametrize("fault", [{"delay": 0.4}, {"pace": 6000}, {"delay": {"uniform": [0.3, 0.5]}}])
def test_a_slow_answer_is_whole(snapshot: Path, fault: dict[str, Any]) -> None:
    with served(snapshot, fault) as (client, ledger):
        began = time.monotonic()
        answer = client.get(URL)
        assert (answer.content, answer.headers["stillweb-verdict"]) == (PAGE, "fault:f0")
        assert time.monotonic() - began > 0.25
        (entry,) = ledger
        assert (entry["verdict"], entry["under"], entry["status"]) == ("fault:f0", "exact", 200)


def test_a_stale_cache_gives_the_older_answer_and_its_age(tmp_path: Path) -> None:
    site = Site(tmp_path / "s")
    for body in (b"price 10", b"price 20"):
        site.add(URL, body, headers=(("Content-Type", "text/plain"),))
    with site.open():
        pass
    with served(tmp_path / "s", {"stale": True, "nth": "2-"}) as (client, ledger):
        answers = [client.get(URL) for _ in range(2)]
        assert [answer.text for answer in answers] == ["price 10", "price 10"]
        assert answers[1].headers["warning"] == '110 - "Response is Stale"'
        assert [e["verdict"] for e in ledger] == ["exact", "fault:f0"]


def test_pattern_method_and_session_choose_the_requests(snapshot: Path) -> None:
    fault = {"status": 500, "url": "https://a.test/p*", "method": "GET", "session": "agent*"}
    with served(snapshot, fault) as (client, ledger):
        assert client.get(URL).status_code == 200  # another session
        del client, ledger
    rules = {"faults": [{"id": "f", **fault}]}
    with stillweb.replay(snapshot, faults=rules) as web, httpx.Client(**web.httpx("agent1")) as client:
        assert [client.get(f"https://a.test/{name}").status_code for name in ("page", "other")] == [500, 200]


def test_a_missing_page_stays_a_miss(snapshot: Path) -> None:
    with served(snapshot, {"delay": 0.01}) as (client, ledger):
        assert client.get("https://a.test/none").status_code == 504
        assert [e["verdict"] for e in ledger] == ["miss"]


def test_the_same_seed_gives_the_same_faults_whatever_the_order(snapshot: Path) -> None:
    rule = {"id": "f", "status": 503, "probability": 0.5}
    urls = [f"https://a.test/page?n={n}" for n in range(30)]

    async def statuses(seed: int, order: list[str]) -> dict[str, int]:
        with stillweb.replay(snapshot, faults={"seed": seed, "faults": [rule]}) as web:
            async with httpx.AsyncClient(**web.httpx()) as client:
                found = await asyncio.gather(*map(client.get, order))
        return {str(one.url): one.status_code for one in found}

    first = asyncio.run(statuses(1, urls))
    assert set(first.values()) == {503, 504}
    assert first == asyncio.run(statuses(1, urls[::-1]))
    assert first != asyncio.run(statuses(2, urls))


def test_each_request_can_be_counted_apart(snapshot: Path) -> None:
    with served(snapshot, {"status": 503, "nth": "1-2", "per": "request"}) as (client, _):
        urls = [URL, "https://a.test/other"] * 3
        assert [client.get(url).status_code for url in urls] == [503] * 4 + [200] * 2


def conversing(
    snapshot: Path, **fault: Any
) -> tuple[str, list[bytes | str | int], list[dict[str, Any]], float]:
    """Ask for the recorded web socket; return status, what the server said, the ledger, and the seconds taken."""
    began = time.monotonic()
    rule = {"id": "f", "url": "http://a.test/socket", **fault}
    said: list[bytes | str | int] = []
    with stillweb.replay(snapshot, faults={"faults": [rule]}) as web:
        with socket.create_connection(("127.0.0.1", urlsplit(web.gateway.url).port or 0), timeout=10) as peer:
            peer.sendall(
                b"GET http://a.test/socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            got = b""
            try:
                while data := peer.recv(65536):
                    got += data
            except ConnectionResetError:
                said.append("reset")
        ledger = list(web.ledger)
    head, _, rest = got.partition(b"\r\n\r\n")
    frames = FrameProtocol(client=True, extensions=[])
    frames.receive_bytes(rest if b" 101 " in head[:13] else b"")
    for frame in frames.received_frames():
        said.append(frame.payload[0] if frame.opcode is Opcode.CLOSE else frame.payload)
    return head[:12].decode(), said, ledger, time.monotonic() - began


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ({"delay": 0.4}, "HTTP/1.1 101", ["hello", 1000]),
        ({"cut": 4}, "HTTP/1.1 101", ["he"]),
        ({"cut": "50%"}, "HTTP/1.1 101", ["h"]),
        ({"status": 503}, "HTTP/1.1 503", []),
        ({"reset": True}, "", ["reset"]),
    ],
)
def test_a_web_socket_meets_faults(
    tmp_path: Path, fault: dict[str, Any], status: str, said: list[Any]
) -> None:
    site = Site(tmp_path / "s")
    site.add("http://a.test/", PAGE)
    with site.open():
        pass
    with Writer.open(tmp_path / "s") as writer:
        messages = [{"from": "server", "text": "hello"}]
        talk = {
            "url": "http://a.test/socket",
            "session": "s",
            "begin": 1,
            "messages": messages,
            "close": [1000, ""],
        }
        writer.metadata("http://a.test/socket", talk)
    found = conversing(tmp_path / "s", **fault)
    assert found[:2] == (status, said)
    assert [entry["verdict"] for entry in found[2]] == ["fault:f"]
    assert found[3] >= fault.get("delay", 0)


@pytest.mark.parametrize(
    ("fault", "error"), [({"status": 502}, "502"), ({"reset": True}, ""), ({"delay": 0.4}, None)]
)
def test_a_tunnel_meets_a_fault_that_names_connect(
    snapshot: Path, fault: dict[str, Any], error: str | None
) -> None:
    began = time.monotonic()
    with served(snapshot, {"method": "CONNECT", "nth": 1, **fault}) as (client, ledger):
        if error is not None:
            with pytest.raises(httpx.TransportError, match=error):
                client.get(URL)
        assert client.get(URL).content == PAGE
        assert [entry["verdict"] for entry in ledger] == ["fault:f0", "exact"]
    assert time.monotonic() - began >= fault.get("delay", 0)


@pytest.mark.parametrize(
    "fault",
    [{"status": 429, "retry_after": 1}, {"reset": True}, {"cut": 100}, {"delay": 0.3}, {"captcha": True}],
)
def test_http2_meets_the_same_faults(snapshot: Path, fault: dict[str, Any]) -> None:
    rules = {"faults": [{"id": "f", "nth": 1, **fault}]}
    with (
        stillweb.replay(snapshot, faults=rules) as web,
        httpx.Client(**{**web.httpx(), "http2": True}) as client,
    ):
        if "reset" in fault or "cut" in fault:
            with pytest.raises(httpx.RemoteProtocolError):
                client.get(H2)
        else:
            answer = client.get(H2)
            assert (answer.http_version, answer.status_code) == (
                "HTTP/2",
                fault.get("status", 403 if "captcha" in fault else 200),
            )
            assert answer.headers["stillweb-verdict"] == "fault:f"
        assert client.get(H2).content == PAGE
        assert [entry["verdict"] for entry in web.ledger] == ["fault:f", "exact"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fault": []}, "unknown field fault"),
        ({"faults": []}, "faults"),
        ({"seed": "x", "faults": [{"id": "a", "delay": 1}]}, "seed"),
        ({"faults": [{"delay": 1}]}, "missing required field id - at $.faults[0]"),
        ({"faults": [{"id": "a"}]}, "says nothing of what goes wrong"),
        ({"faults": [{"id": "a", "delay": 1}, {"id": "a", "delay": 1}]}, "'a' stands twice"),
        ({"faults": [{"id": "a", "status": 200}]}, "faults[0].status"),
        ({"faults": [{"id": "a", "status": 429, "reset": True}]}, "has status and reset"),
        (
            {"faults": [{"id": "a", "reset": True, "retry_after": 1}]},
            "retry_after goes only with status - at $.faults[0]",
        ),
        ({"faults": [{"id": "a", "delay": -1}]}, "faults[0].delay"),
        ({"faults": [{"id": "a", "delay": {"gamma": 1}}]}, "faults[0].delay"),
        (
            {"faults": [{"id": "a", "delay": {"uniform": [2, 1]}}]},
            "uniform: the least, 2, is more than the most, 1 - at $.faults[0].delay",
        ),
        ({"faults": [{"id": "a", "pace": 0}]}, "faults[0].pace"),
        ({"faults": [{"id": "a", "delay": 1, "nth": 0}]}, "faults[0].nth"),
        (
            {"faults": [{"id": "a", "delay": 1, "nth": "4-2"}]},
            "nth: the first count is more than the last - at $.faults[0]",
        ),
        ({"faults": [{"id": "a", "delay": 1, "probability": 2}]}, "faults[0].probability"),
        ({"faults": [{"id": "a", "delay": 1, "per": "x"}]}, "faults[0].per"),
        ({"faults": [{"id": "a", "cut": "150%"}]}, "faults[0].cut"),
        ({"faults": [{"id": "a", "login": 3}]}, "faults[0].login"),
        ({"faults": [{"id": "a", "cut": 3, "method": "CONNECT"}]}, "method: CONNECT goes only with"),
        ({"faults": [{"id": "a", "delay": 1, "metod": "GET"}]}, "unknown field metod - at $.faults[0]"),
    ],
)
def test_a_wrong_file_is_told_by_its_field(content: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as told:
        Faults(content, "faults.yaml")
    assert str(told.value).startswith("faults.yaml: ")
    assert message in str(told.value)
