"""What failed while recording answers just the requests that are known to have failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stillweb.snapshots.contents.failures import KEPT, OPENED, TUNNEL, Failure, Given
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import START, record

DEAD = "http://dead.test/a?b=1"
FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


def failed(request: Request, **more: object) -> Failure:
    return Failure(request, "refused", "Connection refused", START, **more)  # type: ignore[arg-type]


@contextmanager
def matching(path: Path, *failures: Failure, captured: tuple[str, ...] = ()) -> Iterator[Matcher]:
    with Writer.open(path) as writer:
        for url in captured:
            record(writer, url, b"<p>page</p>")
        for failure in failures:
            failure.write(writer)
    with Snapshot.open(path) as snapshot:
        yield snapshot.matcher()


def verdict(
    matcher: Matcher, url: str, method: str = "GET", body: bytes = b"", headers: Headers = (), **more: str
) -> str:
    return matcher.lookup(Request(method, url, headers or (FORM if body else ()), body), **more).verdict


def test_the_same_request_by_its_canonical_form(tmp_path: Path) -> None:
    post = Request("POST", "http://dead.test/f", FORM, b"x=1&y=2")
    with matching(tmp_path / "s", failed(Request("GET", DEAD)), failed(post)) as matcher:
        for url in (DEAD, "HTTP://DEAD.test:80/./a?b=1", f"{DEAD}#part"):
            assert verdict(matcher, url) == "failed:refused"
        assert verdict(matcher, "http://dead.test/f", "POST", b"y=2&x=1") == "failed:refused"
        assert verdict(matcher, "http://dead.test/f", "POST", b"y=2&x=1", accept="exact") == "miss"
        assert verdict(matcher, "http://dead.test/f", "POST", b"x=1&y=2", accept="exact") == "failed:refused"
        for url in (
            "http://dead.test/a?b=2",
            "http://dead.test/a",
            "https://dead.test/a?b=1",
            "http://dead.test:81/a?b=1",
        ):
            assert verdict(matcher, url) == "miss"
        for method, body in (("POST", b""), ("HEAD", b""), ("POST", b"x=1")):
            assert verdict(matcher, DEAD, method, body) == "miss"


def test_what_was_broken_off_is_known_by_nothing(tmp_path: Path) -> None:
    with matching(tmp_path / "s", failed(Request("GET", DEAD), whole=False)) as matcher:
        assert verdict(matcher, DEAD) == "miss"


def test_what_was_captured_is_its_capture_or_a_miss(tmp_path: Path) -> None:
    """Where the capture is refused (it is one of two different ones), the recording does not say that it failed."""
    with matching(tmp_path / "s", failed(Request("GET", DEAD)), captured=(DEAD,)) as matcher:
        assert verdict(matcher, DEAD) == "exact"
    with Writer.open(tmp_path / "s") as writer:
        record(writer, DEAD, b"<p>another</p>", session="other")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert verdict(snapshot.matcher(), DEAD) == "exact"
        assert verdict(snapshot.matcher(), DEAD, accept="rule+unambiguous") == "miss"


@pytest.mark.parametrize(
    ("tunnel", "covered", "not_covered"),
    [
        ("https://dead.test/", "https://DEAD.test/any?thing", "http://dead.test/any"),
        ("https://dead.test/", "http://dead.test:443/any", "https://dead.test:8443/any"),
        ("https://dead.test:80/", "http://dead.test/any", "https://dead.test/any"),
        ("https://[::1]:9/", "https://[::1]:9/any", "https://[::1]:8/any"),
        ("https://dead.test/", "https://user@dead.test/any", "https://www.dead.test/any"),
    ],
)
def test_a_tunnel_covers_its_host_and_port(
    tmp_path: Path, tunnel: str, covered: str, not_covered: str
) -> None:
    with matching(
        tmp_path / "s", failed(Request(TUNNEL, tunnel)), captured=("http://www.dead.test/",)
    ) as matcher:
        assert verdict(matcher, covered) == "failed:refused"
        assert verdict(matcher, covered, "POST", b"x=1") == "failed:refused"
        assert verdict(matcher, not_covered) == "miss"
        assert verdict(matcher, "urn:nothing") == verdict(matcher, "http://[") == "miss"


@pytest.mark.parametrize("captured", ["https://dead.test/some/page?q=1", "http://dead.test:443/"])
def test_a_tunnel_covers_nothing_where_anything_was_captured(tmp_path: Path, captured: str) -> None:
    with matching(
        tmp_path / "s", failed(Request(TUNNEL, "https://dead.test/")), captured=(captured,)
    ) as matcher:
        assert verdict(matcher, "https://dead.test/any") == "miss"
    with matching(
        tmp_path / "t", failed(Request(TUNNEL, "https://dead.test/")), captured=("http://dead.test/",)
    ) as matcher:
        assert verdict(matcher, "https://dead.test/any") == "failed:refused"


@pytest.mark.parametrize("address", ["https://dead.test/socket", "http://DEAD.test:443/socket"])
def test_a_tunnel_covers_nothing_where_a_web_socket_spoke(tmp_path: Path, address: str) -> None:
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(address, {"messages": []})
    tunnels = [failed(Request(TUNNEL, f"https://{host}.test/")) for host in ("dead", "other")]
    with matching(tmp_path / "s", *tunnels) as matcher:
        assert verdict(matcher, "https://dead.test/any") == "miss"
        assert verdict(matcher, "https://other.test/any") == "failed:refused"


def test_in_layers_all_that_was_captured_and_that_failed_counts(tmp_path: Path) -> None:
    with matching(
        tmp_path / "a", failed(Request(TUNNEL, "https://dead.test/")), failed(Request("GET", DEAD))
    ):
        pass
    with matching(tmp_path / "b", captured=("https://dead.test/page", DEAD)):
        pass
    for layers in (("a", "b"), ("b", "a")):
        with Snapshot.open(*(tmp_path / name for name in layers)) as snapshot:
            assert verdict(snapshot.matcher(), DEAD) == "exact"
            assert verdict(snapshot.matcher(), "https://dead.test/other") == "miss"


def test_a_session_goes_on_as_if_it_had_not_been_asked(tmp_path: Path) -> None:
    """A miss of a write leaves what its site knows in doubt; a recorded failure was followed by what is recorded."""
    save, other = (Request("POST", "http://site.test/save", FORM, f"x={x}".encode()) for x in "12")
    with matching(tmp_path / "s", failed(save), captured=("http://site.test/",)) as matcher:
        session = matcher.session()
        assert matcher.lookup(save, session).verdict == "failed:refused"
        assert not session.sites
        assert matcher.lookup(other, session).verdict == "miss"
        assert session.sites


@pytest.mark.parametrize("accept", ["exact", "rule"])
def test_a_long_body_that_is_not_kept_is_no_empty_one(tmp_path: Path, accept: str) -> None:
    long = b"x" * (KEPT + 1)
    with matching(tmp_path / "s", failed(Request("POST", DEAD, (), long))) as matcher:
        assert verdict(matcher, DEAD, "POST", headers=(("X", ""),), accept=accept) == "miss"
        assert matcher.lookup(Request("POST", DEAD, (), long)).verdict == "failed:refused"


def test_only_a_tunnel_speaks_for_its_host(tmp_path: Path) -> None:
    """A request within one (TLS failed, say) speaks for itself."""
    with matching(tmp_path / "s", failed(Request("GET", "https://dead.test/"))) as matcher:
        assert verdict(matcher, "https://dead.test/") == "failed:refused"
        assert verdict(matcher, "https://dead.test/other") == "miss"


def test_a_tunnel_in_which_nothing_was_said_tells_nothing_of_plain_http(tmp_path: Path) -> None:
    """What is spoken there may just be no TLS."""
    mute = failed(Request(TUNNEL, "https://dead.test/"), given=Given(OPENED, "", ""))
    with matching(tmp_path / "s", mute) as matcher:
        assert verdict(matcher, "https://dead.test/any") == "failed:refused"
        assert verdict(matcher, "http://dead.test:443/any") == "miss"
    with matching(tmp_path / "t", failed(Request(TUNNEL, "https://dead.test/"))) as matcher:
        assert verdict(matcher, "http://dead.test:443/any") == "failed:refused"


def test_rules_join_with_what_failed_where_they_are_accepted(tmp_path: Path) -> None:
    asked = [f"{DEAD}&_=17000000000{number}" for number in (10, 20)]
    with matching(tmp_path / "s", failed(Request("GET", asked[0]))) as matcher:
        assert verdict(matcher, asked[1]) == "failed:refused"
        assert verdict(matcher, f"{DEAD}0&_=1700000000020") == "miss"
        for accept in ("exact", "canonical", "varies"):
            assert verdict(matcher, asked[1], accept=accept) == "miss"


def test_of_what_failed_twice_that_counts_of_which_the_client_was_told(tmp_path: Path) -> None:
    request = Request("GET", DEAD)
    left = [
        Failure(request, reason, "", START, waited=waited) for reason, waited in (("tls", 9), ("reset", 5))
    ]
    with matching(tmp_path / "s", *left, failed(request)) as matcher:
        assert verdict(matcher, DEAD) == "failed:refused"
    with matching(tmp_path / "t", *reversed(left)) as matcher:
        assert verdict(matcher, DEAD) == "failed:tls"
