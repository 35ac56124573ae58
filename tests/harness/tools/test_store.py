"""A snapshot asked as a client without cookies asks: what is served in whatever order, and what never is."""

import asyncio
import base64
from itertools import permutations
from pathlib import Path

import pytest

from stillweb.harness.runs.tool_setup import GivenText
from stillweb.harness.tools import Toolset
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.store import Store, first_alike
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text import html_text
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import SITE, Recorder
from tests.proxy.frozen import Site


def test_what_had_one_answer_is_had_in_any_order_but_a_part_is_not_the_whole(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(
            f"{SITE}/login", status=303, method="POST", sent=b'{"user":"ann"}', headers=(("Location", "/"),)
        )
        site.add(f"{SITE}/home", "<p>home</p>")
        site.add(f"{SITE}/part", "abcde", status=206, headers=(("Content-Range", "bytes 0-4/10"),))
        site.add(f"{SITE}/same", "", status=304)
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        found = visit.follow(f"{SITE}/home")
        assert found.capture is not None
        assert found.ambiguous
        for path in ("part", "same"):
            found = visit.follow(f"{SITE}/{path}")  # recorded so for the very same request
            assert (found.verdict, found.ambiguous) == ("exact", True)


def test_a_redirect_of_several_is_never_guessed(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        for name, target in (("ann", "/one"), ("bob", "/two")):
            sent = b'{"user":"%b"}' % name.encode()
            site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
            site.add(f"{SITE}/go", status=302, headers=(("Location", target),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        found = Store(snapshot).session("a").follow(f"{SITE}/go")
        assert found.chain == []
        assert (found.verdict, found.capture) == ("miss", None)


def test_locations_are_read_as_the_real_client_reads_them(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/a", status=302, headers=(("Location", "/caf\u00e9".encode().decode("latin-1")),))
        site.add(f"{SITE}/caf%C3%A9", "<p>coffee</p>")
        site.add(f"{SITE}/b", status=302, headers=(("Location", "//[oops"),))
        site.add(f"{SITE}/c", status=302, headers=(("Location", "http://[::1"),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        found = visit.follow(f"{SITE}/a")
        assert found.capture is not None
        assert found.capture.url == f"{SITE}/caf%C3%A9"
        # a host that isn't there, as the real client has it
        found = visit.follow(f"{SITE}/b")
        assert (found.capture, found.error) == (None, None)
        problem = "RemoteProtocolError(\"Invalid URL in location header: Invalid port: ':1'.\")"
        assert visit.follow(f"{SITE}/c").error == problem


def test_a_redirect_that_leads_nowhere_ends_as_the_real_clients_does(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/empty", status=302, headers=(("Location", ""),))
        site.add(f"{SITE}/ftp", status=302, headers=(("Location", "ftp://files.test/"),))
        site.add(f"{SITE}/tab", status=302, headers=(("Location", "/a\tb"),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        assert visit.follow(f"{SITE}/empty").redirects
        found = visit.follow(f"{SITE}/ftp")
        assert (found.verdict, found.capture) == ("exact", None)
        assert found.error == "UnsupportedProtocol(\"Request URL has an unsupported protocol 'ftp://'.\")"
        assert "Invalid non-printable ASCII character" in (visit.follow(f"{SITE}/tab").error or "")


@pytest.mark.parametrize("signed_in", [False, True])
def test_of_two_orders_of_a_query_each_gets_its_own_answer(tmp_path: Path, signed_in: bool) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        if signed_in:
            sent = b'{"user":"ann"}'
            site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
        site.add(f"{SITE}/q?a=1&b=2", "<p>one</p>")
        site.add(f"{SITE}/q?b=2&a=1", "<p>two</p>")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        store = Store(snapshot)
        visit = store.session("as recorded")
        for address in (f"{SITE}/q?a=1&b=2", f"{SITE}/q?b=2&a=1"):
            for found in (visit.follow(address), store.session(address).follow(address)):
                assert found.capture is not None
                assert (found.capture.url, found.verdict) == (address, "exact")
            by_rule = visit.follow(f"{address}&")
            assert by_rule.capture is not None
            assert (by_rule.capture.url, by_rule.verdict) == (address, "rule:empty-query")


PAGES = [f"https://a.test/{name}" for name in ("one", "two", "three")]


def test_the_order_of_questions_changes_no_evidence(tmp_path: Path) -> None:
    site = Site(tmp_path / "s")
    for _ in range(3):
        for page in PAGES:
            site.add(page, f"<p>{page}</p>".encode())
    found = set()
    with site.open() as snapshot:
        store = Store(snapshot)
        for number, order in enumerate(permutations(PAGES)):
            visit = store.session(str(number))
            named = {page: visit.look(Request("GET", page)).chain[0].place for page in (*order, *order)}
            found.add(str(sorted(named.items())))
        assert len(found) == 1
        given = GivenText(store)
        entry = {"url": PAGES[0], "method": "GET"}
        last = [c for c in snapshot.captures() if c.url == PAGES[0]][-1]
        told = {"file": last.filename, "offset": last.offset, "digest": last.digest}
        named_now = given.evidence({**entry, "capture": told})
        assert named_now is not None
        assert (named_now["file"], named_now["offset"]) == first_alike(snapshot, last).place != last.place
        assert given.evidence({**entry, "capture": None}) is None
        # a rule answers the request with the capture of another address
        moved = {"url": "https://a.test/other/path", "method": "GET", "capture": told}
        assert given.evidence(moved) == named_now


def test_a_page_that_a_program_asks_for_again_and_again_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text took seconds for each request, and all other attempts waited."""
    site = Site(tmp_path / "s")
    site.add("https://a.test/", b"<p>one</p>", headers=(("Content-Type", "text/html"),))
    reads = []
    parse = html_text.parse
    monkeypatch.setattr(html_text, "parse", lambda html: reads.append(html) or parse(html))
    with site.open() as snapshot:
        given = GivenText(Store(snapshot))
        (capture,) = snapshot.captures()
        told = {"file": capture.filename, "offset": capture.offset, "digest": capture.digest}
        entry = {"url": capture.url, "method": "GET", "capture": told}
        assert [given(entry).strip() for _ in range(3)] == ["one"] * 3
    assert len(reads) == 1


def test_what_says_something_else_is_not_named(tmp_path: Path) -> None:
    site = Site(tmp_path / "s")
    url = "https://a.test/"
    site.add(url, b"<p>old</p>")
    site.add(url, b"<p>new</p>")
    site.add(url, b"<p>new</p>", headers=(("Content-Type", "text/plain"),))
    site.add(url, b"<p>new</p>", status=404)
    for aim in ("/x", "/y"):
        site.add(url, b"moved", status=302, headers=(("Location", aim),))
    with site.open() as snapshot:
        captures = list(snapshot.captures())
        assert len(captures) == 6
        assert [first_alike(snapshot, one) for one in captures] == captures


HERE = "http://here.test:8080"
ANN = "Basic " + base64.b64encode(b"ann:p@ss").decode()


def said(path: Path, url: str) -> ToolResult:
    async def ask(snapshot: Snapshot) -> ToolResult:
        session = Toolset(snapshot, ["fetch"]).session("s")
        return await session.call("fetch", {"url": url, "raw": True})

    with Snapshot.open(path) as snapshot:
        return asyncio.run(ask(snapshot))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "s"
    places = {
        "hostless": "http:///page",
        "scheme": "http:/page",
        "relative": "///page",
        "user": f"{HERE.replace('//', '//bob:secret@')}/page",
        "nowhere": "http:page",
    }
    with Writer.open(path) as writer:
        site = Recorder(writer)
        for name, place in places.items():
            site.add(f"{HERE}/{name}", status=302, headers=(("Location", place),))
        site.add(f"{HERE}/page", "at the port", "text/plain")
        site.add("http://here.test/page", "at no port", "text/plain")
    return path


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"{HERE}/hostless", "at no port"),
        (f"{HERE}/scheme", "at no port"),
        (f"{HERE}/relative", "at the port"),
        (f"{HERE}/user", "at the port"),
    ],
)
def test_it_goes_where_httpx_goes(site: Path, url: str, text: str) -> None:
    result = said(site, url)
    assert (result.is_error, result.text.splitlines()[-1]) == (False, text)
    assert f"Contents of {url}:" in result.text


def test_an_address_without_a_name_is_nowhere(site: Path) -> None:
    assert said(site, f"{HERE}/nowhere").text.startswith(f"Failed to fetch {HERE}/nowhere: ConnectError(")


def test_a_page_that_asks_who_comes_knows_who_does(tmp_path: Path) -> None:
    """Recorded with a user and without: each is answered as it was, and never with the other's."""
    from datetime import UTC, datetime

    from stillweb.snapshots.capture import Exchange
    from stillweb.snapshots.request import Request

    with Writer.open(tmp_path / "s") as writer:
        for number, (who, status, body) in enumerate(
            [((), 401, b"who?"), ((("Authorization", ANN),), 200, b"ann's")]
        ):
            begin = writer.event("s")
            fields = (("Content-Type", "text/plain"), ("Vary", "Authorization"))
            at = datetime(2025, 1, 1, 0, 0, number, tzinfo=UTC)
            request = Request("GET", f"{HERE}/mine", who)
            writer.exchange(Exchange(request, status, "OK", fields, body, at, "s", begin, writer.event("s")))
    assert said(tmp_path / "s", f"{HERE}/mine").text == f"Failed to fetch {HERE}/mine - status code 401"
    assert said(tmp_path / "s", f"{HERE.replace('//', '//ann:p%40ss@')}/mine").text.endswith("ann's")
