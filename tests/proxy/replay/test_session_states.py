"""Sessions whose clients are gone leave memory, and go on where they stood when they return."""

import gc
import pickle
import time
from pathlib import Path

import pytest

from stillweb.proxy.replay import replies as lines
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.replies import SessionState
from stillweb.snapshots import cache
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.recognising import Recogniser
from stillweb.snapshots.request import Headers, Request
from tests.proxy.frozen import Site
from tests.proxy.gateways import client
from tests.support.waiting import until

A = "http://a.test"
FORM: Headers = (("Content-Type", "application/x-www-form-urlencoded"),)
GIVEN = ("Set-Cookie", "sid=0123456789abcdef0123456789abcdef; HttpOnly")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site that counts, gives a cookie, and shows what a filter that was posted lets pass."""
    site = Site(tmp_path / "s")
    site.add(f"{A}/", b"all", headers=(("Content-Type", "text/html"), GIVEN))
    for number in range(4):
        site.add(f"{A}/tick", b"tick %d" % number)
    for kind in ("toys", "books"):
        kinds = b"kind=" + kind.encode()
        site.add(f"{A}/filter", b"set", method="POST", request_headers=FORM, request_body=kinds)
        site.add(f"{A}/list", f"<p>{kind}".encode())
    return site


ASKED = [
    Request("GET", f"{A}/"),
    Request("GET", f"{A}/tick"),
    Request("GET", f"{A}/tick"),
    Request("POST", f"{A}/filter", FORM, b"kind=books"),
    Request("GET", f"{A}/list"),
    Request("GET", f"{A}/list?none"),
    Request("POST", f"{A}/none", FORM, b"x=1"),
    Request("GET", f"{A}/tick"),
    Request("POST", f"{A}/filter", FORM, b"kind=toys"),
    Request("GET", f"{A}/list"),
    Request("GET", f"{A}/tick"),
]


def test_a_session_that_rested_is_answered_as_one_that_did_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "REST", -1.0)
    with site.open() as snapshot:
        ledger = Ledger()
        answerer = Answerer(snapshot, ledger)
        bodies: dict[str, list[bytes]] = {"lively": [], "sleepy": []}
        for request in ASKED:
            for name, got in bodies.items():
                got.append(answerer.answer(request, answerer.state(name)).body)
                answerer.state("lively").clients = 1
            for _ in range(2):  # it is seen to have asked, and then to ask no more
                list(answerer.states.move_idle_sessions())
            assert answerer.states.get("sleepy") is not answerer.states.get("sleepy"), "not at rest"
        assert bodies["sleepy"] == bodies["lively"]
        assert len(set(bodies["sleepy"])) > 6, "nothing hung on what was asked before"
        assert answerer.missed("sleepy") == answerer.missed("lively") != []
        assert answerer.sessions == {"sleepy": len(ASKED), "lively": len(ASKED)}
        told = {
            name: [
                {k: v for k, v in e.items() if k not in ("ms", "session")}
                for e in ledger
                if e["session"] == name
            ]
            for name in bodies
        }
        assert told["sleepy"] == told["lively"]


def test_what_a_session_has_sent_of_secrets_rests_with_it() -> None:
    known = Recogniser()
    known.remember("tell-nobody-" * 2, "secret-0123456789abcdef")
    again: Recogniser = pickle.loads(pickle.dumps(known))
    request = Request("GET", f"{A}/?key=" + "tell-nobody-" * 2)
    assert again.request(request) == known.request(request) != request


def lines_in_memory(*names: str) -> int:
    """Return how many sessions of these names are in memory; a gateway of another test may go meanwhile."""
    gc.collect()  # what has gone in circles would wait for others to make garbage
    return sum(isinstance(one, SessionState) and one.name in names for one in gc.get_objects())


@pytest.mark.slow
def test_many_sessions_leave_nothing_in_memory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "REST", 0.0)
    names = [f"s{number}" for number in range(100)]
    with site.open() as snapshot, Gateway(snapshot) as gateway:
        for name in names:
            with client(gateway, name) as c:
                assert c.get(f"{A}/tick").text == "tick 0"
        assert until(lambda: lines_in_memory(*names) == 0)
        assert gateway.stats.sessions == dict.fromkeys(names, 1)
        with client(gateway, "s7") as c:
            assert c.get(f"{A}/tick").text == "tick 1"
        assert gateway.ledger.entries()[-1]["seq"] == 1


@pytest.mark.slow
def test_a_session_with_an_open_connection_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "REST", 0.0)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "stays") as c:
        c.get(f"{A}/")
        with client(gateway, "goes") as other:
            other.get(f"{A}/")
        assert until(lambda: lines_in_memory("goes") == 0)
        time.sleep(2.2)  # the gateway has looked twice more
        assert lines_in_memory("stays") == 1


@pytest.mark.slow
def test_addresses_that_never_come_again_leave_memory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ENTRIES", 400)
    with site.open() as snapshot:
        answerer = Answerer(snapshot, Ledger())
        keys = keys_in_memory()
        for number in range(1_000):
            answerer.lookup(Request("GET", f"{A}/never?{number}"), answerer.state("s"))
        assert keys_in_memory() - keys < 500


def keys_in_memory() -> int:
    """Return how many keys of requests are in memory."""
    return sum(isinstance(one, Key) for one in gc.get_objects())
