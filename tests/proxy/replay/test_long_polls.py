"""Long polls of any kind: what hangs in a replay, what lets it go, and what the ledger says of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event

import httpx
import pytest

from stillweb.proxy.replay.answering import Answerer, delayed_reply
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.replies import Reply, SessionState
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import START
from tests.proxy.gateways import client
from tests.support.waiting import HANG, until

HOSTS = {"http/1.1": "one.example", "h2": "two.example"}
TEXT = (("Content-Type", "text/plain"),)
PLAIN = {"Content-Type": "text/plain"}


def exchange(
    writer: Writer, url: str, seconds: float, begin: int, end: int, said: bytes, protocol: str = "http/1.1"
) -> None:
    asked = Request("POST" if said else "GET", url, TEXT if said else (), said)
    answer = b"ok" if said else f"news {url.rpartition('/')[2]} {begin}".encode()
    moment = START + timedelta(seconds=seconds)
    writer.exchange(Exchange(asked, 200, "OK", TEXT, answer, moment, "s", begin, end, protocol))


@contextmanager
def recorded(path: Path, *, cursor: bool = False, hung: float = 2.0) -> Iterator[Snapshot]:
    """A poll while which something was said, two after it, and another such: the last but one brought by time."""
    with Writer.open(path) as writer:
        names = [f"news?since={number}" if cursor else "news" for number in range(4)]
        for protocol, host in HOSTS.items():
            for name, seconds, begin, end, said in (
                (names[0], 0.0, 1, 4, b""),
                ("say", hung, 2, 3, b"tea"),
                (names[1], hung + 0.1, 5, 8, b""),
                ("say", hung + 0.2, 6, 7, b"rum"),
                (names[2], hung + 0.3, 9, 10, b""),
            ):
                exchange(writer, f"https://{host}/{name}", seconds, begin, end, said, protocol)
            waiting = Request("GET", f"https://{host}/{names[3]}")
            Failure(waiting, "timeout", "left", START, "s", seconds_waited=3).write(writer)
    with Snapshot.open(path) as snapshot:
        yield snapshot


def say(c: httpx.Client, host: str, what: bytes) -> str:
    return c.post(f"https://{host}/say", content=what, headers=PLAIN).text


def walk(
    gateway: Gateway,
    one: httpx.Client,
    other: httpx.Client,
    pool: ThreadPoolExecutor,
    asked: list[str],
    told: list[str],
    host: str,
) -> None:
    for number, word in enumerate((b"tea", b"rum")):
        poll = pool.submit(one.get, asked[number])
        assert until(lambda: gateway.stats.connections >= 1)
        with pytest.raises(TimeoutError):
            poll.result(0.2)
        assert (say(other, host, word), poll.result(HANG).text) == ("ok", told[number])
    assert one.get(asked[2]).text == told[2]  # brought by time
    with pytest.raises(httpx.ReadTimeout):
        one.get(asked[3], timeout=0.3)


@pytest.mark.parametrize("cursor", [False, True])
@pytest.mark.parametrize("protocol", HOSTS)
def test_a_poll_hangs_until_that_was_said_which_it_was_recorded_after(
    tmp_path: Path, protocol: str, cursor: bool
) -> None:
    more = {"http1": protocol == "http/1.1", "http2": protocol == "h2"}
    host = HOSTS[protocol]
    asked = [f"https://{host}/news?since={n}" if cursor else f"https://{host}/news" for n in range(4)]
    told = [f"news {url.partition('example/')[2]} {n}" for url, n in zip(asked, (1, 5, 9), strict=False)]
    with recorded(tmp_path / "s", cursor=cursor) as snapshot, Gateway(snapshot) as gateway:
        with (
            client(gateway, "p", **more) as one,
            client(gateway, "p", **more) as other,
            ThreadPoolExecutor(1) as pool,
        ):
            walk(gateway, one, other, pool, asked, told, host)
        assert until(lambda: len(gateway.ledger.entries()) == 6)  # its client has left
        last = gateway.ledger.entries()[-1]
        assert (last["verdict"], last["status"]) == ("failed:timeout" if cursor else "exact", 0)
        assert last["capture"] is None
        assert gateway.stats.misses == 0


def test_what_was_not_said_brings_no_news(tmp_path: Path) -> None:
    with recorded(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert say(c, "one.example", b"gin").startswith("stillweb: miss")
        with pytest.raises(httpx.ReadTimeout):
            c.get("https://one.example/news", timeout=0.3)
        assert until(lambda: len(gateway.ledger.entries()) == 2)
        assert "why" in gateway.ledger.entries()[-1]


def test_a_poll_that_asks_for_the_same_again_is_answered_again(tmp_path: Path) -> None:
    with (
        recorded(tmp_path / "s", cursor=True) as snapshot,
        Gateway(snapshot) as gateway,
        client(gateway, "p") as c,
    ):
        say(c, "one.example", b"tea")
        told = [c.get("https://one.example/news?since=0").text for _ in range(2)]
        assert told == ["news news?since=0 1"] * 2


@pytest.mark.parametrize("protocol", HOSTS)
def test_a_poll_that_hangs_ends_with_the_gateway(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = Event()

    def noted(answerer: Answerer, request: Request, line: SessionState, rule: str | None) -> Reply:
        arrived.set()
        return delayed_reply(answerer, request, line, rule)

    monkeypatch.setattr("stillweb.proxy.replay.answering.delayed_reply", noted)
    more = {"http1": protocol == "http/1.1", "http2": protocol == "h2"}
    with (
        recorded(tmp_path / "s") as snapshot,
        Gateway(snapshot) as gateway,
        client(gateway, "p", **more) as c,
        ThreadPoolExecutor(1) as pool,
    ):
        poll = pool.submit(c.get, f"https://{HOSTS[protocol]}/news")
        assert arrived.wait(HANG)
        with pytest.raises(TimeoutError):
            poll.result(0.2)
        gateway.close()
        assert isinstance(poll.exception(HANG), httpx.TransportError)
        assert [entry["status"] for entry in gateway.ledger.entries()] == [0]


def test_what_was_written_soon_is_no_sign_of_a_poll(tmp_path: Path) -> None:
    with (
        recorded(tmp_path / "s", hung=0.3) as snapshot,
        Gateway(snapshot) as gateway,
        client(gateway, "p") as c,
    ):
        assert c.get("https://one.example/news").status_code == 200


def test_nor_is_one_answer_that_took_long(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        exchange(writer, "https://one.example/slow", 0, 1, 4, b"")
        exchange(writer, "https://one.example/say", 2, 2, 3, b"tea")
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get("https://one.example/slow").text == "news slow 1"
