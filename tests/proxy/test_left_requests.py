"""Requests that their clients left, without a byte of an answer: nothing is said to those that leave again."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import httpx
import pytest

from stillweb.proxy.record.flows import UNANSWERED, UNCONNECTED
from stillweb.proxy.replay.answering import MOST_HELD
from stillweb.snapshots.contents.failures import OPENED, TUNNEL, Failure, ProxyResponse
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.proxy import gateways
from tests.proxy.dead import mute, silent_port
from tests.proxy.lab import Lab, gate
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.test_failed_requests import failures, recording, replaying, verdicts
from tests.support.waiting import HANG, until

LEAVES = 1.5
HURRY = threading.Event()
Places = dict[str, tuple[str, int]]
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def places(lab: Lab) -> Iterator[Places]:
    """Origins of which /slow is answered when `HURRY` is set."""
    HURRY.clear()
    with Origin(answer) as plain, Origin(answer, lab.ca.context_for("demo.example", ("h2",))) as secure:
        yield {
            "slow.example": ("127.0.0.1", plain.port),
            "demo.example": ("127.0.0.1", secure.port),
            "plain.example": ("127.0.0.1", lab.plain.port),
        }
        HURRY.set()


async def answer(asked: Asked) -> Answer:
    while asked.path == "/slow" and not HURRY.is_set():
        await asyncio.sleep(0.01)
    return Answer(body=b"late")


def leave(c: httpx.Client, url: str, seconds: float | httpx.Timeout = LEAVES, method: str = "GET") -> str:
    """Waits in vain; what the client says of that."""
    with pytest.raises(httpx.TimeoutException) as left:
        c.request(method, url, timeout=seconds)
    return repr(left.value)


def leave_all(c: httpx.Client, *urls: str) -> list[str]:
    found: list[str] = [""] * len(urls)

    def one(number: int) -> None:
        found[number] = leave(c, urls[number])

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(urls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.slow
def test_a_client_that_left_leaves_again_in_its_own_words(lab: Lab, places: Places, tmp_path: Path) -> None:
    """A slow answer, a connection that doesn't come about, an origin that speaks no TLS; one that is left
    at once says nothing, nor one of which a part has come."""
    with silent_port() as silent, mute() as dumb:
        here = "http://127.0.0.1"
        urls = [
            "http://slow.example/slow",
            f"{here}:{silent}/a",
            f"https://127.0.0.1:{silent}/",
            f"https://127.0.0.1:{dumb}/",
        ]
        with recording(lab, tmp_path / "s", resolve=places) as (recorder, c):
            gate.open.clear()
            told = leave_all(c, *urls, "http://plain.example/slow")[
                :4
            ]  # it has the head of that one's answer
            leave(c, f"{here}:{dumb}/soon", httpx.Timeout(HANG, read=0.05))
            until(lambda: len(recorder.given_up) == 5)  # the tunnel that did not come about has failed
            gate.open.set()
            assert [url for url, _ in recorder.failures] == [urls[2]]  # nobody mistrusts us
    found = {
        (f.request.method, f.request.url): (f.reason, f.message, f.proxy_response)
        for f in failures(tmp_path / "s")
    }
    assert found == {
        ("GET", urls[0]): ("timeout", UNANSWERED, None),
        ("GET", urls[1]): ("timeout", UNCONNECTED, None),
        (TUNNEL, urls[2]): ("timeout", UNCONNECTED, None),
        (TUNNEL, urls[3]): ("timeout", UNANSWERED, ProxyResponse(OPENED, "", "")),
    }
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert leave_all(c, *urls) == told
        assert verdicts(gateway) == ["failed:timeout"] * 4
        assert {line["status"] for line in gateway.ledger.entries()} == {0}
        until(lambda: gateway.stats.connections == 0)
        assert (gateway.stats.misses, gateway.stats.failed) == (0, 4)
        assert c.get(f"{here}:{dumb}/soon").status_code == 504
        assert c.get("http://stillweb.local/").json()["failed"] == 4


@pytest.mark.slow
def test_a_client_that_stays_longer_has_missed_something(lab: Lab, places: Places, tmp_path: Path) -> None:
    with mute() as dumb:
        with recording(lab, tmp_path / "s", resolve=places) as (_, c):
            leave_all(c, "http://slow.example/slow", f"https://127.0.0.1:{dumb}/")
        with replaying(lab, tmp_path / "s") as (gateway, c):
            answer = c.get("http://slow.example/slow", timeout=HANG)
            with pytest.raises(httpx.HTTPError) as broken:
                c.get(f"https://127.0.0.1:{dumb}/", timeout=HANG)
            lines = gateway.ledger.entries()
            assert gateway.stats.misses == 2
    assert (answer.status_code, answer.headers["stillweb-verdict"]) == (504, "miss")
    assert not isinstance(broken.value, httpx.TimeoutException)
    assert [(line["method"], line["verdict"]) for line in lines] == [
        ("GET", "failed:timeout"), ("GET", "miss"), (TUNNEL, "failed:timeout"), (TUNNEL, "miss"),
    ]  # fmt: skip
    assert all("its client left after" in lines[number]["why"] for number in (1, 3))


@pytest.mark.slow
def test_a_stream_that_is_reset_was_left(lab: Lab, places: Places, tmp_path: Path) -> None:
    """Of two on one connection the client takes back one."""
    with recording(lab, tmp_path / "s", resolve=places) as (_, c):
        c.get("https://demo.example/soon")
        leave(c, "https://demo.example/slow")
    with (
        replaying(lab, tmp_path / "s") as (gateway, _),
        gateways.tunnel(gateway, "demo.example", ("h2",), session="two") as sock,
    ):
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        fields = [
            (":method", "GET"),
            (":authority", "demo.example"),
            (":scheme", "https"),
            (":path", "/slow"),
        ]
        for stream in (1, 3):
            mine.send_headers(stream, fields, end_stream=True)
        mine.reset_stream(1)
        sock.sendall(mine.data_to_send())
        ended: list[int | None] = []
        while not ended:
            events = mine.receive_data(sock.recv(1 << 16))
            ended += [event.stream_id for event in events if isinstance(event, h2.events.StreamEnded)]
        assert ended == [3]
        assert verdicts(gateway) == ["failed:timeout", "failed:timeout", "miss"]


def test_what_was_left_once_and_answered_another_time_is_answered(
    lab: Lab, places: Places, tmp_path: Path
) -> None:
    with recording(lab, tmp_path / "s", resolve=places) as (_, c):
        leave(c, "http://slow.example/slow")
        HURRY.set()
        assert c.get("http://slow.example/slow").text == "late"
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert c.get("http://slow.example/slow").text == "late"
        assert verdicts(gateway) == ["exact"]


def test_what_is_tried_again_is_kept_once(lab: Lab, tmp_path: Path) -> None:
    with recording(lab, tmp_path / "s") as (recorder, c):
        for _ in range(3):
            assert c.get("http://closed.example:9/a").status_code == 502
            with pytest.raises(httpx.ProxyError):
                c.get("https://closed.example/a")
    assert recorder.unanswered == 2
    assert len(failures(tmp_path / "s")) == 2


def failed(path: Path, *failures: Failure) -> Path:
    with Writer.open(path) as writer:
        for failure in failures:
            failure.write(writer)
    return path


def left(method: str, url: str, waited: int, given: ProxyResponse | None = None) -> Failure:
    return Failure(
        Request(method, url), "timeout", UNANSWERED, MOMENT, "default", given, seconds_waited=waited
    )


def test_a_client_of_great_patience_is_not_waited_for(lab: Lab, tmp_path: Path) -> None:
    path = failed(
        tmp_path / "s",
        left("GET", "http://dead.test/a", MOST_HELD + 1),
        left(TUNNEL, "https://dead.test/", MOST_HELD + 1, ProxyResponse(OPENED, "", "")),
    )
    with replaying(lab, path) as (gateway, c):
        answer = c.get("http://dead.test/a")
        with pytest.raises(httpx.ProxyError, match="502"):
            c.get("https://dead.test/")
        assert verdicts(gateway) == ["failed:timeout"] * 2
        assert [line["status"] for line in gateway.ledger.entries()] == [502, 502]
    assert (answer.status_code, answer.headers["stillweb-verdict"]) == (502, "failed:timeout")
    assert "after 31 seconds" in answer.text


def test_a_tunnel_in_which_no_tls_was_spoken_speaks_for_tls_alone(lab: Lab, tmp_path: Path) -> None:
    path = failed(tmp_path / "s", left(TUNNEL, "https://dead.test:8080/", 90, ProxyResponse(OPENED, "", "")))
    with replaying(lab, path) as (gateway, c):
        assert c.get("http://dead.test:8080/").status_code == 504
        with pytest.raises(httpx.ProxyError):
            c.get("https://dead.test:8080/")
        assert verdicts(gateway) == ["miss", "failed:timeout"]
