"""Virtual hosts answer beside the snapshot, each session apart; one that fails is told."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.proxy.gateways import client


def test_each_session_is_answered_by_itself(tmp_path: Path, authority: Authority) -> None:
    counts: Counter[str] = Counter()

    def answer(request: Request, session: str) -> Response:
        counts[session] += 1
        return Response(200, "OK", (("Stillweb-Verdict", "rendered"),), f"made {counts[session]}".encode())

    site = Site(tmp_path / "s")
    site.add("http://plain.example/", b"plain")
    with (
        site.open() as snapshot,
        Gateway(
            snapshot, authority=authority, virtual_hosts={"made.example": answer}, challenge=False
        ) as gateway,
    ):

        def go(name: str) -> list[str]:
            said = []
            for url in ("https://made.example/a", "http://plain.example/", "http://made.example/b"):
                with client(gateway, name) as c:
                    said.append(c.get(url).text)
            return said

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(go, "abcd")) == [["made 1", "plain", "made 2"]] * 4
        entries = gateway.ledger.entries()
    for name in "abcd":
        mine = [entry for entry in entries if entry["session"] == name]
        assert [entry["verdict"] for entry in mine] == ["rendered", "exact", "rendered"]
        assert [entry["seq"] for entry in mine] == [0, 1, 2]


def test_a_host_that_raises_is_on_the_status_page(tmp_path: Path, authority: Authority) -> None:
    def answer(request: Request, session: str) -> Response:
        raise ZeroDivisionError("on purpose")

    site = Site(tmp_path / "s")
    site.add("http://plain.example/", b"plain")
    with (
        site.open() as snapshot,
        Gateway(
            snapshot, authority=authority, virtual_hosts={"made.example": answer}, challenge=False
        ) as gateway,
    ):
        for name in "ab":
            with client(gateway, name) as c:
                assert c.get("http://made.example/").status_code == 500
        with client(gateway) as c:
            status = c.get("http://stillweb.local/").json()
        assert status["failures"] == ["ZeroDivisionError: on purpose"] * 2
        assert status["misses"] == gateway.stats.failures == 2
