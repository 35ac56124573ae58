"""Virtual hosts that each process of a gateway makes for itself: the same answers, and what is wrong is told at start."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stillweb.proxy.serving.gateway import Gateway
from stillweb.proxy.serving.hosting import MadeHosts
from stillweb.proxy.wire.certificates import Authority
from stillweb.snapshots.capture import Response
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from tests.proxy.frozen import Site
from tests.proxy.gateways import client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("hosts") / "snap")
    made.add("http://plain.example/", b"plain")
    with made.open():
        pass
    return made


def make_counting(snapshot: Snapshot, *, word: str) -> dict[str, Any]:
    """A host that knows how often each session has asked it."""
    counts: Counter[str] = Counter()

    def answer(request: Request, session: str) -> Response:
        counts[session] += 1
        return Response(200, "OK", (("Stillweb-Verdict", "rendered"),), f"{word} {counts[session]}".encode())

    return {"made.example": answer}


def make_broken(snapshot: Snapshot) -> dict[str, Any]:
    """A host that raises."""

    def answer(request: Request, session: str) -> Response:
        raise ZeroDivisionError("on purpose")

    return {"made.example": answer}


def make_failing(snapshot: Snapshot) -> dict[str, Any]:
    raise ValueError("no\nway")


def make_nothing(snapshot: Snapshot) -> Any:
    return ["made.example"]


def make_complaint(snapshot: Snapshot) -> dict[str, Any]:
    raise DamagedInput("index.cdx: line 3: no digest")


HERE = "tests.proxy.serving.test_hosting"


def test_virtual_hosts_are_made_in_each_worker(site: Site, authority: Authority) -> None:
    hosts = MadeHosts(f"{HERE}:make_counting", {"word": "made"})
    found = []
    with Snapshot.open(site.path) as snapshot:
        for count in (1, 2):
            with Gateway(
                snapshot, authority=authority, workers=count, virtual_hosts=hosts, challenge=False
            ) as gateway:

                def go(name: str, gateway: Gateway = gateway) -> list[str]:
                    said = []
                    for url in ("https://made.example/a", "http://plain.example/", "http://made.example/b"):
                        with client(gateway, name) as c:
                            said.append(c.get(url).text)
                    return said

                with ThreadPoolExecutor(4) as pool:
                    assert list(pool.map(go, "abcd")) == [["made 1", "plain", "made 2"]] * 4
                gateway.close()
                entries = gateway.ledger.entries()
                for name in "abcd":
                    mine = [entry for entry in entries if entry["session"] == name]
                    assert [entry["verdict"] for entry in mine] == ["rendered", "exact", "rendered"]
                    assert [entry["seq"] for entry in mine] == [0, 1, 2]
                found.append(gateway.ledger.hash())
    assert len(set(found)) == 1


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("maker", "options", "kind", "told"),
    [
        ("make_counting", {}, UsageError, "a name is package.module:function"),
        ("nowhere.at_all:make", {}, UsageError, "ModuleNotFoundError: No module named 'nowhere'"),
        (f"{HERE}:nothing", {}, UsageError, "AttributeError: module "),
        (f"{HERE}:HERE", {}, UsageError, "this is no function"),
        (f"{HERE}:make_failing", {}, UsageError, "it failed: ValueError: no way"),
        (f"{HERE}:make_counting", {"size": 1}, UsageError, "it failed: TypeError: make_counting"),
        (f"{HERE}:make_nothing", {}, UsageError, "it must give a mapping of hosts to functions"),
        (f"{HERE}:make_complaint", {}, DamagedInput, "index.cdx: line 3: no digest"),
    ],
)
def test_virtual_hosts_that_cant_be_made_are_told_at_start(
    site: Site, authority: Authority, count: int,
    maker: str, options: dict[str, Any], kind: type[Exception], told: str,
) -> None:  # fmt: skip
    with (
        Snapshot.open(site.path) as snapshot,
        pytest.raises(kind) as error,
        Gateway(snapshot, authority=authority, workers=count, virtual_hosts=MadeHosts(maker, options)),
    ):
        pass
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_host_that_raises_is_on_the_status_page(site: Site, authority: Authority) -> None:
    hosts = MadeHosts(f"{HERE}:make_broken")
    with (
        Snapshot.open(site.path) as snapshot,
        Gateway(snapshot, authority=authority, workers=2, virtual_hosts=hosts, challenge=False) as gateway,
    ):
        for name in "ab":
            with client(gateway, name) as c:
                assert c.get("http://made.example/").status_code == 500
        with client(gateway) as c:
            status = c.get("http://stillweb.local/").json()
        assert status["failures"] == ["ZeroDivisionError: on purpose"] * 2
        assert status["misses"] == gateway.stats.failures == 2


def test_what_a_new_interpreter_cant_make_is_told_alike(site: Site, authority: Authority) -> None:
    with Snapshot.open(site.path) as snapshot:
        hosts = MadeHosts(f"{HERE}:make_complaint")
        with pytest.raises(DamagedInput, match=r"a worker could not start: index.cdx: line 3: no digest"):
            Gateway(snapshot, authority=authority, workers=2, virtual_hosts=hosts).start()
