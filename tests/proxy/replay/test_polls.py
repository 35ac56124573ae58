"""Long polls of a replayed session: what waits, what lets it go, and what becomes of it when its client leaves."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import h2.config
import h2.connection
import httpx
import pytest
from wsproto.events import TextMessage

from stillweb.proxy.replay.answering import Answerer, delayed_reply
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.polls import PollProgress, Polls
from stillweb.proxy.replay.replies import Reply, SessionState
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.proxy.gateways import client, tunnel
from tests.proxy.replay.test_http2 import answers
from tests.proxy.replay.test_talks import hear, spoken
from tests.support.waiting import HANG, until

SID = "Vq1xLk4tR8mZp0cJwA3d"
PATH = "/socket.io/?EIO=4&transport=polling"
HOSTS = {"http/1.1": "one.example", "h2": "two.example"}
TEXT = (("Content-Type", "text/plain"),)


def at(protocol: str, number: int) -> str:
    return f"https://{HOSTS[protocol]}{PATH}&t=k{number}&sid={SID}"


@pytest.fixture
def polled(tmp_path: Path) -> Iterator[Gateway]:
    """A poll that was answered once something was said beside it, and one after that."""
    site = Site(tmp_path / "s")
    for protocol in HOSTS:
        site.add(at(protocol, 1), b"42 said", headers=TEXT, protocol=protocol)
        site.add(at(protocol, 2), b"ok", method="POST", request_body=b"42", headers=TEXT, protocol=protocol)
        poll, said = site.exchanges[-2:]
        poll.end, said.begin, said.end = site.events, site.events - 2, site.events - 1
        site.add(at(protocol, 3), b"2", headers=TEXT, protocol=protocol)
    with site.open() as snapshot, Gateway(snapshot) as gateway:
        yield gateway


@pytest.mark.parametrize("protocol", HOSTS)
def test_a_poll_waits_for_what_it_was_recorded_after(polled: Gateway, protocol: str) -> None:
    more = {"http1": protocol == "http/1.1", "http2": protocol == "h2"}
    with (
        client(polled, "p", **more) as one,
        client(polled, "p", **more) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        poll = pool.submit(one.get, at(protocol, 11))
        assert until(lambda: polled.stats.connections == 1)
        said = other.post(at(protocol, 12), content=b"42", headers={"Content-Type": "text/plain"})
        assert (said.text, poll.result(HANG).text) == ("ok", "42 said")
        assert one.get(at(protocol, 13)).text == "2"
    told = [(entry["method"], entry["verdict"], entry["ambiguous"]) for entry in polled.ledger.entries()]
    assert told == [(method, "rule:engine-io", False) for method in ("POST", "GET", "GET")]


@pytest.mark.parametrize("then", ["nothing", "the rest"])
def test_a_poll_whose_client_said_what_came_later_is_soon_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The server would answer that; the client waited for ever."""
    site = Site(tmp_path / "s")
    for number, said in enumerate((b"42a", b"42b")):
        site.add(at("h2", 2 * number), b"ok", method="POST", request_body=said, headers=TEXT)
        site.add(at("h2", 2 * number + 1), b"43" + said[2:], headers=TEXT)
    monkeypatch.setattr("stillweb.proxy.replay.answering.PATIENCE", HANG if then == "the rest" else 0)
    with site.open() as snapshot, Gateway(snapshot) as gateway, ThreadPoolExecutor(1) as pool:

        def say(what: bytes) -> None:
            assert two.post(at("h2", 9), content=what, headers={"Content-Type": "text/plain"}).text == "ok"

        with client(gateway, "p") as one, client(gateway, "p") as two:
            say(b"42b")
            poll = pool.submit(one.get, at("h2", 10))
            if then == "the rest":
                assert until(lambda: gateway.stats.connections == 2)
                say(b"42a")
            assert poll.result(HANG).text.startswith("43a" if then == "the rest" else "stillweb: miss")
        last = gateway.ledger.entries()[-1]
        assert (last["verdict"], last["ambiguous"]) == (
            ("rule:engine-io", True) if then == "the rest" else ("miss", False)
        )


def test_a_client_that_leaves_takes_no_answer_along(polled: Gateway) -> None:
    with client(polled, "p") as c:
        with pytest.raises(httpx.ReadTimeout):
            c.get(at("http/1.1", 11), timeout=0.3)
        assert until(lambda: not polled.stats.connections)
        assert c.post(at("http/1.1", 12), content=b"42", headers={"Content-Type": "text/plain"}).text == "ok"
        assert c.get(at("http/1.1", 13)).text == "42 said"


def test_nor_does_one_that_takes_its_stream_back(polled: Gateway) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    fields = [(":authority", HOSTS["h2"]), (":scheme", "https")]
    path = f"{PATH}&t=k{{}}&sid={SID}"
    with tunnel(polled, HOSTS["h2"], ("h2",), "p") as sock:
        connection.initiate_connection()
        connection.send_headers(1, [(":method", "GET"), *fields, (":path", path.format(11))], end_stream=True)
        connection.reset_stream(1)
        connection.send_headers(
            3, [(":method", "POST"), *fields, (":path", path.format(12)), ("content-type", "text/plain")]
        )
        connection.send_data(3, b"42", end_stream=True)
        sock.sendall(connection.data_to_send())
        assert answers(sock, connection, 3) == b"ok"
        connection.send_headers(5, [(":method", "GET"), *fields, (":path", path.format(13))], end_stream=True)
        sock.sendall(connection.data_to_send())
        assert answers(sock, connection, 5) == b"42 said"


def test_the_last_poll_stays_open_and_ends_with_the_gateway(
    polled: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = Event()

    def noted(answerer: Answerer, request: Request, line: SessionState, rule: str | None) -> Reply:
        arrived.set()
        return delayed_reply(answerer, request, line, rule)

    with client(polled, "p") as c, ThreadPoolExecutor(1) as pool:
        c.post(at("http/1.1", 12), content=b"42", headers={"Content-Type": "text/plain"})
        assert [c.get(at("http/1.1", number)).text for number in (13, 14)] == ["42 said", "2"]
        monkeypatch.setattr("stillweb.proxy.replay.answering.delayed_reply", noted)
        last = pool.submit(c.get, at("http/1.1", 15))
        assert arrived.wait(HANG)
        polled.close()
        assert isinstance(last.exception(HANG), httpx.TransportError)
    assert [entry["status"] for entry in polled.ledger.entries()] == [200, 200, 200, 0]
    assert polled.ledger.entries()[-1]["verdict"] == "rule:engine-io"


def test_what_came_before_a_web_socket_spoke_does_not_wait_for_it(tmp_path: Path) -> None:
    site, channel = Site(tmp_path / "s"), f"https://{HOSTS['h2']}{PATH}&sid={SID}"
    socket = channel.replace("polling", "websocket")
    talk = {"url": socket, "session": "default", "begin": 5, "events": [6, 6], "messages": []}
    talk["messages"] = [{"from": "client", "text": "2probe"}, {"from": "server", "text": "3probe"}]
    for method, span in (("GET", (1, 4)), ("POST", (2, 3)), ("GET", (6, 7))):
        site.add(f"{channel}&t={span[0]}", b"said", method=method, headers=TEXT)
        site.exchanges[-1].begin, site.exchanges[-1].end = span
    with site.open():
        pass
    with Writer.open(site.path) as writer:
        writer.metadata(socket, talk)
    with Snapshot.open(site.path) as snapshot:
        polls, progress = Polls(snapshot.matcher()), PollProgress()

        def next(method: str, t: int) -> tuple[int, bool] | None:
            found = polls.next(progress, Request(method, f"{channel}&t={t}"), "default", ())
            if found is not None and found[1]:
                progress.answered(found[0], True)
            return found and (found[0].begin, found[1])

        assert next("GET", 11) == (1, False)  # the POST is to come
        assert not polls.opens(socket, progress)
        assert [next("POST", 12), next("GET", 11)] == [(2, True), (1, True)]
        assert not polls.opens(socket, progress)  # nobody asked for what came after its first message
        assert next("GET", 13) == (6, False)
        assert polls.opens(socket, progress)
        progress.opened(socket)
        assert next("GET", 13) == (6, True)


@pytest.mark.parametrize(("version", "nothing"), [("4", "6"), ("3", "1:6")])
def test_a_poll_beyond_the_recorded_ones_ends_as_its_channel_goes_on_in_a_web_socket(
    tmp_path: Path, version: str, nothing: str
) -> None:
    """Socket.IO's client upgrades once its poll has ended; one that had asked too soon waited for ever."""
    channel = f"http://h.example{PATH.replace('4', version)}&sid={SID}"
    socket = channel.replace("polling", "websocket")
    site = Site(tmp_path / "s")
    site.add(f"{channel}&t=1", b"40", headers=(*TEXT, ("Access-Control-Allow-Origin", "*")))
    with site.open():
        pass
    talk = {"url": socket, "session": "default", "begin": 5, "events": [6, 6], "messages": []}
    talk["messages"] = [{"from": "client", "text": "2probe"}, {"from": "server", "text": "3probe"}]
    with Writer.open(site.path) as writer:
        writer.metadata(socket, talk)
    with (
        Snapshot.open(site.path) as snapshot,
        Gateway(snapshot) as gateway,
        client(gateway, None) as c,
        ThreadPoolExecutor(1) as pool,
    ):
        assert c.get(f"{channel}&t=2").text == "40"
        poll = pool.submit(c.get, f"{channel}&t=3")
        with spoken(gateway, "h.example", socket.removeprefix("http://h.example")) as (peer, ws):
            peer.sendall(ws.send(TextMessage("2probe")))
            assert hear(peer, ws) == "3probe"
            answer = poll.result(HANG)
        assert (answer.text, answer.headers["access-control-allow-origin"]) == (nothing, "*")
        assert [e["verdict"] for e in gateway.ledger.entries()][-1] == "synthetic"
