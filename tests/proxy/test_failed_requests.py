"""Requests that come to no answer: what the snapshot keeps of them, and what a replay makes of that."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.contents.failures import MEDIA, START, Failure
from stillweb.snapshots.operations import leaks
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy import gateways
from tests.proxy.dead import closed_port, resetting
from tests.proxy.lab import Lab, client
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG, until

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def dead() -> Iterator[str]:
    with closed_port() as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def recording(lab: Lab, path: Path, **options: Any) -> Iterator[tuple[Recorder, httpx.Client]]:
    with Writer.open(path) as writer, lab.recorder(writer, **options) as recorder, client(recorder) as c:
        yield recorder, c


@contextmanager
def replaying(lab: Lab, *paths: Path, **options: Any) -> Iterator[tuple[Gateway, httpx.Client]]:
    with (
        Snapshot.open(*paths) as snapshot,
        Gateway(snapshot, authority=lab.ours, **options) as gateway,
        gateways.client(gateway, None) as c,
    ):
        yield gateway, c


def verdicts(gateway: Gateway) -> list[str]:
    return [line["verdict"] for line in gateway.ledger.entries()]


def failures(path: Path) -> list[Failure]:
    with Snapshot.open(path) as snapshot:
        found = list(snapshot.failures())
        assert list(snapshot.captures()) == []
        return found


def test_the_request_is_kept_as_it_was_sent(lab: Lab, dead: str, tmp_path: Path) -> None:
    with recording(lab, tmp_path / "s") as (recorder, c):
        told = c.post(
            f"{dead}/a?b=1", content=b"x=1&y=%C3%BC", headers={**FORM, "X-Own": "caf\xe9".encode("latin-1")}
        )
    (failure,) = failures(tmp_path / "s")
    request = failure.request
    assert (request.method, request.url, request.body) == ("POST", f"{dead}/a?b=1", b"x=1&y=%C3%BC")
    assert request.header("x-own") == "caf\xe9"
    assert (failure.reason, failure.session, failure.is_whole) == ("refused", "default", True)
    assert failure.proxy_response is not None
    assert (failure.proxy_response.status, failure.proxy_response.body) == (told.status_code, told.text)
    assert recorder.unanswered == 1


def test_the_client_hears_the_same_again(lab: Lab, dead: str, tmp_path: Path) -> None:
    with recording(lab, tmp_path / "s") as (_, c):
        told = c.post(f"{dead}/a", content=b"x=1", headers=FORM)
        with pytest.raises(httpx.ProxyError) as refused:
            c.get(dead.replace("http:", "https:"))
    with replaying(lab, tmp_path / "s") as (gateway, c):
        again = c.post(f"{dead}/a", content=b"x=1", headers=FORM)
        with pytest.raises(httpx.ProxyError) as refused_again:
            c.get(dead.replace("http:", "https:"))
        assert gateway.stats.misses == 0
        assert verdicts(gateway) == ["failed:refused"] * 2
    assert (again.status_code, again.headers["content-type"], again.content) == (
        told.status_code, told.headers["content-type"], told.content,
    )  # fmt: skip
    assert again.headers["stillweb-verdict"] == "failed:refused"
    assert repr(refused_again.value) == repr(refused.value)


@pytest.mark.parametrize(
    ("method", "path", "body"), [("GET", "/a?x=2", ""), ("GET", "/b?x=1", ""), ("POST", "/a?x=1", "y=2"), ("PUT", "/a?x=1", "y=1")]
)  # fmt: skip
def test_another_request_to_the_same_place_is_a_miss(
    lab: Lab, dead: str, tmp_path: Path, method: str, path: str, body: str
) -> None:
    with recording(lab, tmp_path / "s") as (_, c):
        c.get(f"{dead}/a?x=1")
        c.post(f"{dead}/a?x=1", content=b"y=1", headers=FORM)
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert c.get(f"{dead}/a?x=1").status_code == 502
        assert c.request(method, f"{dead}{path}", content=body, headers=FORM).status_code == 504
        assert verdicts(gateway) == ["failed:refused", "miss"]
        assert gateway.stats.misses == 1


def test_rules_join_what_failed_where_they_are_accepted(lab: Lab, dead: str, tmp_path: Path) -> None:
    """Parameters in another order are the same request; a cache buster is left out by a rule."""
    with recording(lab, tmp_path / "s") as (_, c):
        c.get(f"{dead}/x.js?v=3&_=1700000000001")
    buster, order = f"{dead}/x.js?v=3&_=1700000000002", f"{dead}/x.js?_=1700000000001&v=3"
    for accept, expected in (("exact", [504, 504]), ("canonical", [504, 502]), ("rule", [502, 502])):
        with replaying(lab, tmp_path / "s", accept=accept) as (_, c):
            assert [c.get(buster).status_code, c.get(order).status_code] == expected


def test_what_was_recorded_in_the_end_is_its_capture(lab: Lab, tmp_path: Path) -> None:
    with closed_port() as port:
        url, place = f"http://late.example:{port}/", {"late.example": ("127.0.0.1", port)}
        with recording(lab, tmp_path / "s", resolve=place) as (_, c):
            assert c.get(url).status_code == 502
    with recording(lab, tmp_path / "s", resolve={"late.example": ("127.0.0.1", lab.plain.port)}) as (_, c):
        assert c.get(url).status_code == 200
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert c.get(url).status_code == 200
        assert verdicts(gateway) == ["exact"]


def test_a_tunnel_speaks_for_all_that_was_to_be_asked_in_it_unless_one_came_about(
    lab: Lab, tmp_path: Path
) -> None:
    """Before a capture of that host and port there is nothing that a request in it could have been answered with."""
    asked, nowhere = f"https://demo.example:{lab.secure.port}", {"demo.example": ("127.0.0.1", 9)}
    with recording(lab, tmp_path / "s") as (_, c), pytest.raises(httpx.ProxyError):
        c.get("https://closed.example/a")
    with recording(lab, tmp_path / "s", resolve=nowhere) as (_, c), pytest.raises(httpx.ProxyError):
        c.get(f"{asked}/a")
    with replaying(lab, tmp_path / "s") as (gateway, c):
        for url in ("https://closed.example/never", f"{asked}/never", "https://closed.example/a"):
            with pytest.raises(httpx.ProxyError):
                c.get(url)
        assert c.get("http://closed.example/a").status_code == 504  # another port
        lines = gateway.ledger.entries()
    assert [(one["method"], one["verdict"]) for one in lines[:3]] == [("CONNECT", "failed:refused")] * 3
    assert "no tunnel to closed.example:443 could be opened" in lines[0]["why"]
    with recording(lab, tmp_path / "s") as (_, c):
        assert c.get(f"{asked}/b").status_code == 200
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert [c.get(f"{asked}/b").status_code, c.get(f"{asked}/a").status_code] == [200, 504]
        assert verdicts(gateway) == ["exact", "miss"]


def test_a_damaged_record_of_a_tunnel_answers_nothing_and_is_named(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(f"{START}https://dead.example/", {}, MEDIA)
    with replaying(lab, tmp_path / "s") as (gateway, c):
        assert c.get("https://dead.example/a").status_code == 504
        assert [line["verdict"] for line in gateway.ledger.entries()] == ["miss"]
        assert any("data-00000.warc.gz" in one for one in gateway.snapshot.notes)
    assert any("data-00000.warc.gz" in str(problem) for problem in verify(tmp_path / "s"))


def test_secrets_are_replaced_and_another_one_fails_as_well(lab: Lab, dead: str, tmp_path: Path) -> None:
    key, other = "0123456789abcdef01234567", "76543210fedcba9876543210"
    with recording(lab, tmp_path / "s") as (_, c):
        c.post(f"{dead}/in?api_key={key}", content=b"user=ann&password=Very-Secret-1", headers=FORM)
    (failure,) = failures(tmp_path / "s")
    assert key not in failure.request.url
    assert b"Very-Secret-1" not in failure.request.body
    with replaying(lab, tmp_path / "s") as (gateway, c):
        c.post(f"{dead}/in?api_key={other}", content=b"user=ann&password=Other-Secret-2", headers=FORM)
        c.post(f"{dead}/in?api_key={other}", content=b"user=bob&password=Other-Secret-2", headers=FORM)
        assert verdicts(gateway) == ["failed:refused", "miss"]
        assert b"Other-Secret-2" not in gateway.ledger.text()


def test_secrets_of_what_failed_are_found(lab: Lab, dead: str, tmp_path: Path) -> None:
    with recording(lab, tmp_path / "s", redact=False) as (_, c):
        c.get(
            f"{dead}/?api_key=0123456789abcdef01234567", headers={"Authorization": "Bearer 0123456789abcdef"}
        )
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert {leak.part for leak in leaks.scan(snapshot)} == {"url", "request header Authorization"}


def test_what_was_not_said_whole_is_known_by_nothing(lab: Lab, tmp_path: Path) -> None:
    """A long body is known by its key alone; one that was broken off is kept, and speaks for no request."""
    with resetting() as port, recording(lab, tmp_path / "s") as (_, c):
        url, long = f"http://127.0.0.1:{port}/up", b"0123456789" * 10_000
        assert c.post(url, content=long).status_code == 502
    (failure,) = failures(tmp_path / "s")
    assert (failure.request.body, failure.left_out) == (b"", len(long))
    with replaying(lab, tmp_path / "s") as (gateway, c):
        c.post(url, content=long)
        c.post(url, content=long[1:])
        assert verdicts(gateway) == ["failed:reset", "miss"]


def test_of_what_was_not_sent_to_its_end_or_is_too_long_no_request_is_known(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures are kept and match no request: an origin broke off within a body, another body is over the limit."""
    monkeypatch.setattr("stillweb.proxy.record.flows._MAX_KEYED_BODY", 10_000)
    broken = threading.Event()

    def part() -> Iterator[bytes]:
        yield b"0123456789"
        broken.wait(HANG)

    with resetting() as port, recording(lab, tmp_path / "s") as (recorder, c):
        url = f"http://127.0.0.1:{port}"
        thread = threading.Thread(target=lambda: until(lambda: recorder.failures) and broken.set())
        thread.start()
        with contextlib.suppress(httpx.TransportError):
            c.post(f"{url}/part", content=part())
        thread.join()
        long = "http://plain.example/cut-short"
        assert c.post(long, content=iter([b"0123456789"] * 2_000)).status_code == 502
    found = {one.request.url: one.is_whole for one in failures(tmp_path / "s")}
    assert found == {f"{url}/part": False, long: False}
    with replaying(lab, tmp_path / "s") as (gateway, c):
        for place, body in ((f"{url}/part", b""), (f"{url}/part", b"0123456789"), (long, b"")):
            c.post(place, content=body)
        assert verdicts(gateway) == ["miss"] * 3


def test_who_has_a_part_of_an_answer_was_told_nothing_else(lab: Lab, tmp_path: Path) -> None:
    with recording(lab, tmp_path / "s") as (_, c), pytest.raises(httpx.RemoteProtocolError):
        c.get("http://plain.example/cut-long")
    (failure,) = failures(tmp_path / "s")
    assert (failure.reason, failure.proxy_response) == ("incomplete", None)


def test_an_origin_that_breaks_off_in_its_handshake_has_failed_in_that(lab: Lab, tmp_path: Path) -> None:
    with resetting(0.8) as port, recording(lab, tmp_path / "s") as (_, c):
        assert c.get(f"https://127.0.0.1:{port}/").status_code == 502
    assert [one.reason for one in failures(tmp_path / "s")] == ["tls"]


def test_what_a_browser_asks_for_of_its_own_accord_is_not_kept(lab: Lab, dead: str, tmp_path: Path) -> None:
    place = {"safebrowsing.google.com": ("127.0.0.1", int(dead.rpartition(":")[2]))}
    with recording(lab, tmp_path / "s", resolve=place) as (_, c):
        assert c.get("http://safebrowsing.google.com/").status_code == 502
    assert failures(tmp_path / "s") == []


def test_it_changes_nothing_of_what_its_site_answers(lab: Lab, tmp_path: Path) -> None:
    """Later requests were recorded all the same, so replay finds them."""

    def fickle(asked: Asked) -> Answer:
        if asked.path == "/save":
            return Answer(headers=[("Content-Length", "5000")], body=b"x", cut=1)
        return Answer(headers=[("Content-Type", "text/html")], body=b"<p>list</p>")

    def visit(c: httpx.Client) -> None:
        assert c.post(f"{origin.url}/save", content=b"a=1", headers=FORM).status_code == 502
        assert c.get(f"{origin.url}/list").status_code == 200

    with Origin(fickle) as origin:
        with recording(lab, tmp_path / "s") as (_, c):
            visit(c)
        with replaying(lab, tmp_path / "s") as (gateway, c):
            visit(c)
            lines = gateway.ledger.entries()
    assert [line["verdict"] for line in lines] == ["failed:incomplete", "exact"]
    assert not lines[1]["ambiguous"]
