"""Random walks on the stateful site over real sockets: through the recorder, then through the gateway.

`tests/snapshots/test_state.py` walks it a thousand times in process; here the wire takes part too.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proxy import Gateway, Recorder
from snapshots import Request, Response, Snapshot, Writer, seal
from tests.support.stateful_site import GREETINGS, HOST, Site, serve
from tests.support.walks import Action, Client, Result, Send, perform, random_walk

SESSIONS = 8
WALKS = 24
LENGTH = 6


@contextmanager
def through(proxy_url: str) -> Iterator[Send]:
    """Sends requests over one connection to a proxy, in a session; a miss is None."""
    place = urlsplit(proxy_url)
    assert place.hostname
    connection = HTTPConnection(place.hostname, place.port, timeout=30)
    who = base64.b64encode(f"{place.username}:{place.password}".encode()).decode()

    def send(request: Request) -> Response | None:
        headers = {**dict(request.headers), "Proxy-Authorization": f"Basic {who}"}
        connection.request(request.method, request.url, request.body or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 504 and answer.getheader("Stillweb-Verdict") == "miss":
            return None
        return Response(answer.status, answer.reason, tuple(answer.getheaders()), body)

    try:
        yield send
    finally:
        connection.close()


def walk_all(
    walks: list[list[Action]], proxy: Callable[[int], str], visit: Callable[[int, Send], None]
) -> None:
    """Each walk by a client of its own, as many at once as there are sessions, each session in its own order."""

    def line(number: int) -> None:
        for index in range(number, len(walks), SESSIONS):
            with through(proxy(index)) as send:
                visit(index, send)

    with ThreadPoolExecutor(SESSIONS) as pool:
        list(pool.map(line, range(SESSIONS)))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Action]]]:
    """The site, walked by eight sessions at once through the recorder, and sealed."""
    site = tmp_path_factory.mktemp("walks") / "site"
    walks = [random_walk(seed, LENGTH) for seed in range(WALKS)]
    host = urlsplit(HOST).hostname
    assert host
    with serve() as url, Writer.open(site) as writer:
        place = urlsplit(url)
        assert place.hostname
        assert place.port
        with Recorder(writer, resolve={host: (place.hostname, place.port)}) as recorder:

            def visit(index: int, send: Send) -> None:
                client = Client(send, list(GREETINGS)[index % 3])
                for turn, action in enumerate(walks[index]):
                    perform(client, action, noise=f"{index}.{turn}")

            walk_all(walks, lambda index: recorder.proxy_url(f"s{index % SESSIONS}"), visit)
    return seal(site).path, walks


def replay(sealed: Path, walks: list[list[Action]]) -> Result:
    """The walks against the gateway, beside a live site of their own; every text compared."""
    result, lock = Result(), threading.Lock()
    live_site = Site()
    with Snapshot.open(sealed) as snapshot, Gateway(snapshot) as gateway:

        def visit(index: int, send: Send) -> None:
            language = list(GREETINGS)[index % 3]
            live, frozen = Client(live_site.handle, language), Client(send, language)
            for turn, action in enumerate(walks[index]):
                with lock:
                    expected = perform(live, action, noise=f"{index}.{turn}9")
                found = perform(frozen, action, noise=f"{index}.{turn}8")
                with lock:
                    for want, have in zip(expected, found, strict=False):
                        if have == "miss":
                            result.missed += 1
                            break
                        if want == have:
                            result.right += 1
                        else:
                            result.wrong.append(f"{walks[index][: turn + 1]}: expected {want}, got {have}")

        walk_all(walks, lambda index: gateway.proxy_url(f"r{index}"), visit)
    return result


def test_what_was_walked_is_answered_as_the_live_site_does(recorded: tuple[Path, list[list[Action]]]) -> None:
    result = replay(*recorded)
    assert result.wrong == []
    assert result.rate > 0.9, f"{result.right} right, {result.missed} missed"


def test_other_walks_are_answered_rightly_or_missed(recorded: tuple[Path, list[list[Action]]]) -> None:
    result = replay(recorded[0], [random_walk(seed, LENGTH) for seed in range(5000, 5000 + WALKS)])
    assert result.wrong == []
    assert result.right > 0


def test_a_password_that_was_not_recorded_is_a_miss(tmp_path: Path) -> None:
    host = urlsplit(HOST).hostname
    assert host
    site = tmp_path / "site"
    with serve() as url, Writer.open(site) as writer:
        place = urlsplit(url)
        assert place.hostname
        assert place.port
        with (
            Recorder(writer, resolve={host: (place.hostname, place.port)}) as recorder,
            through(recorder.proxy_url("one")) as send,
        ):
            Client(send).form("/login", user="ann", password="not-the-one-7")
    with Snapshot.open(site) as snapshot, Gateway(snapshot) as gateway:
        with through(gateway.proxy_url("two")) as send:
            Client(send).form("/login", user="ann", password="quite-another-8")
        entry = gateway.ledger.entries()[0]
    assert entry["verdict"] == "miss"
