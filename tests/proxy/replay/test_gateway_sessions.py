"""Sessions, the ledger, the gateway's own pages and hosts that are made up."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.proxy.frozen import Site
from tests.proxy.gateways import client
from tests.support.waiting import HANG, until


@pytest.mark.slow
def test_thirty_two_sessions_at_once(gateway: Gateway) -> None:
    def work(number: int) -> list[int]:
        with client(gateway, f"s{number}") as c:
            return [
                c.get(u).status_code
                for u in ("https://site.example/", "https://site.example/none", "https://two.example/") * 2
            ]

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(work, range(32)))
    assert found == [[200, 504, 200] * 2] * 32
    entries = gateway.ledger.entries()
    for number in range(32):
        mine = [e for e in entries if e["session"] == f"s{number}"]
        assert [e["seq"] for e in mine] == list(range(6))
        assert [e["status"] for e in mine] == [200, 504, 200] * 2


def test_clients_without_a_name_are_a_programs(tmp_path: Path) -> None:
    site = Site(tmp_path / "s")
    site.add("http://a.test/", b"a")
    with site.open() as snapshot, Gateway(snapshot) as gateway:
        gateway.set_default_session("north")
        assert "north" in gateway.proxy_url("north")  # after which others are asked for their names
        for proxy in (gateway.url, gateway.proxy_url("north")):
            with httpx.Client(proxy=proxy) as c:
                assert c.get("http://a.test/").status_code == 200
        assert gateway.stats.sessions == {"north": 2}


def test_a_name_that_can_be_none_is_refused_for_them(gateway: Gateway) -> None:
    with pytest.raises(UsageError, match="can't be a session's name"):
        gateway.set_default_session("a:b")


def test_a_repeated_request_has_the_same_ledger_entry_but_for_its_number(gateway: Gateway) -> None:
    with client(gateway, "twice") as c:
        for _ in range(3):
            c.get("https://site.example/")
    one, two, three = [
        {k: v for k, v in e.items() if k not in ("seq", "ms")}
        for e in gateway.ledger
        if e["session"] == "twice"
    ]
    assert one == two == three
    assert set(one) == {
        "session",
        "key",
        "method",
        "url",
        "verdict",
        "rule",
        "capture",
        "state",
        "ambiguous",
        "confidence",
        "irrelevant",
        "status",
    }


@pytest.mark.parametrize("large", [False, True])
def test_an_answer_that_the_recording_does_not_decide_says_so(tmp_path: Path, large: bool) -> None:
    """As its ledger line does: another order of a name that comes twice, small or streamed, asked for again or not."""
    site = Site(tmp_path / "s")
    site.add("https://a.test/list?sort=a&sort=b", bytes(20_000_000) if large else b"a, then b")
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "s") as c:
        for order, told in (
            ("a&sort=b", None),
            ("b&sort=a", "true"),
            ("a&sort=b", None),
            ("b&sort=a", "true"),
        ):
            answer = c.get(f"https://a.test/list?sort={order}")
            assert answer.headers.get("stillweb-ambiguous") == told
            assert gateway.ledger.entries()[-1]["ambiguous"] is (told is not None)


def test_the_sessions_name_is_percent_decoded(gateway: Gateway) -> None:
    name = "a task/7 é"
    url = gateway.proxy_url(name)
    assert " " not in url
    with httpx.Client(proxy=url, trust_env=False, timeout=HANG) as c:
        assert c.get("http://site.example/plain?a=1&b=2").status_code == 200
    assert gateway.ledger.entries()[-1]["session"] == name
    for bad in ("", " a", "a\nb", "a:b", "100%"):
        with pytest.raises(UsageError):
            gateway.proxy_url(bad)


def test_a_gateway_for_agents_shows_no_pages_of_its_own(gateway: Gateway) -> None:
    with Gateway(gateway.snapshot, own_pages=False) as quiet, client(quiet, "reader") as c:
        c.get("http://site.example/plain?a=1&b=2")
        asked = [f"{quiet.url}/ledger", "http://stillweb.local/ledger", "https://stillweb.local/", "http://stillweb.local/misses"]  # fmt: skip
        for url in asked:
            answer = c.get(url)
            assert (answer.status_code >= 400, answer.headers["stillweb-verdict"]) == (True, "miss")
            assert "site.example" not in answer.text
        direct = httpx.get(quiet.url + "/ledger", trust_env=False, timeout=HANG)
        assert direct.status_code == 404


def test_own_pages(gateway: Gateway) -> None:
    with client(gateway, "reader") as c:
        status = c.get("http://stillweb.local/").json()
        assert c.get("https://stillweb.local/ca.pem").content == gateway.ca_path.read_bytes()
        lines = c.get("http://stillweb.local/ledger").text.splitlines()
        assert c.get("http://stillweb.local/other").status_code == 404
        assert c.post("http://stillweb.local/").status_code == 405
        assert c.head("http://stillweb.local/").content == b""
        misses = c.get("http://stillweb.local/misses").text.splitlines()
    assert status["snapshot"] == gateway.snapshot.id
    assert all(json.loads(line)["session"] for line in lines)
    assert all(json.loads(line)["verdict"] == "miss" for line in misses)
    assert (
        httpx.get(gateway.url + "/ca.pem", trust_env=False, timeout=HANG).content
        == gateway.ca_path.read_bytes()
    )
    assert "reader" not in {e["session"] for e in gateway.ledger}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_ledger_that_can_not_be_written_is_not_shown_as_if_it_were_whole(tmp_path: Path) -> None:
    site = Site(tmp_path / "s")
    site.add("https://a.test/", b"a")
    with site.open() as snapshot:
        gateway = Gateway(snapshot, ledger=Ledger("/dev/full")).start()
        with client(gateway, "s") as c:
            assert c.get("https://a.test/").text == "a"
            for page in ("ledger", "misses"):
                told = c.get(f"http://stillweb.local/{page}")
                assert (told.status_code, "the disk is full" in told.text) == (500, True)
            for kind in ("text/html", "application/json"):
                told = c.get("http://stillweb.local/", headers={"Accept": kind})
                assert (told.status_code, "the disk is full" in told.text) == (200, True)
        with pytest.raises(MissingCapability, match="the disk is full"):
            gateway.close()


def test_virtual_hosts(gateway: Gateway) -> None:
    with client(gateway, "v") as c:
        made = c.post("https://made.example/x", content=b"hi")
        failed = c.get("http://made.example/fail")
    assert made.text == "v POST https://made.example/x hi"
    assert made.headers["stillweb-verdict"] == "rendered"
    assert (failed.status_code, "on purpose" in failed.text) == (500, True)
    assert [e["verdict"] for e in gateway.ledger if e["session"] == "v"] == ["rendered", "miss"]


def test_a_client_that_does_not_trust_us_is_in_the_ledger(gateway: Gateway) -> None:
    with httpx.Client(proxy=gateway.url.replace("://", "://wary:x@"), trust_env=False, timeout=HANG) as c:
        # the second is a browser's own errand
        for url in ("https://site.example/", "https://update.googleapis.com/"):
            with pytest.raises(httpx.ConnectError):
                c.get(url)
    assert until(lambda: sum(e["session"] == "wary" for e in gateway.ledger) == 2)
    entry, errand = (e for e in gateway.ledger if e["session"] == "wary")
    assert (entry["method"], entry["verdict"], entry["url"]) == ("CONNECT", "miss", "https://site.example/")
    assert "TLS" in entry["why"]
    assert (entry["irrelevant"], errand["irrelevant"]) == (False, True)


def test_who_has_no_name_is_asked_once_names_are_given_out(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g:
        with client(g, None) as c:
            assert c.get("http://site.example/").status_code == 200
            g.proxy_url("one")
            assert c.get("http://site.example/").status_code == 407
            assert c.get("http://stillweb.local/").status_code == 200
            with pytest.raises(httpx.ProxyError):
                c.get("https://site.example/")
        with client(g, "one") as c:
            assert c.get("http://site.example/").status_code == 200
    assert [e["session"] for e in g.ledger] == ["default", "one"]


def test_a_session_can_be_reset(gateway: Gateway) -> None:
    with client(gateway, "again") as c:
        c.get("https://site.example/")
        gateway.reset("again")
        c.get("https://site.example/")
    assert [e["seq"] for e in gateway.ledger if e["session"] == "again"] == [0, 1]


def test_two_runs_have_the_same_hash(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    for number in range(10):
        site.add(f"http://site.example/{number}", b"x%d" % number)
    hashes = []
    with site.open() as snapshot:
        for run in range(2):
            with Gateway(snapshot, authority=authority) as g:

                def work(name: str, g: Gateway = g) -> None:
                    with client(g, name) as c:
                        for number in range(12):
                            c.get(f"http://site.example/{number}")

                names = ["a", "b", "c"]
                with ThreadPoolExecutor(3) as pool:
                    list(pool.map(work, names if run == 0 else names[::-1]))
                hashes.append(g.ledger.hash())
    assert hashes[0] == hashes[1]
