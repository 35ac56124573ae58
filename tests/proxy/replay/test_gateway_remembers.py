"""The memory of a request's answer never outlives the state that made it right."""

import gc
from pathlib import Path

import pytest

from stillweb.proxy.net import ca
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay import hub
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.replies import CachedCapture
from tests.proxy.frozen import Site
from tests.proxy.gateways import client


def test_a_remembered_answer_is_not_given_to_a_session_that_changed_something(
    tmp_path: Path, authority: Authority
) -> None:
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"all")
    site.add("https://site.example/set", b"ok", method="POST", request_headers=form, request_body=b"f=1")
    site.add("https://site.example/", b"some")
    with site.open() as snapshot, Gateway(snapshot, authority=authority, challenge=False) as g:

        def walk(name: str, *bodies: bytes) -> list[str]:
            said = []
            with client(g, name) as c:
                for body in bodies:
                    url = f"https://site.example/{'set' if body else ''}"
                    method = "POST" if body else "GET"
                    said.append(c.request(method, url, content=body, headers=dict(form)).text[:14])
            return said

        for name in ("a", "b"):
            assert walk(name, b"", b"", b"", b"f=1", b"", b"") == ["all", "all", "all", "ok", "some", "some"]
        assert walk("c", b"", b"", b"f=2", b"") == ["all", "all", "stillweb: miss", "stillweb: miss"]
        assert walk("d", b"", b"f=1") == ["all", "ok"]
        g.reset("d")
        assert walk("d", b"", b"") == ["all", "all"]


def test_an_answer_to_a_client_without_cookies_is_not_sure_for_one_that_brings_one(
    tmp_path: Path, authority: Authority
) -> None:
    cookies = ("sid=k3v9q0t7m2x8b4n6c1z5r0p7d2", "lang=en")
    site = Site(tmp_path / "snap")
    html = ("Content-Type", "text/html")
    gives = tuple(("Set-Cookie", f"{cookie}; Path=/") for cookie in cookies)
    site.add("https://site.example/", b"home", headers=(html, *gives))
    site.add("https://site.example/x", b"x", headers=(html,), session="another")
    site.add("https://site.example/y", b"y", headers=(html,), session="third")
    with site.open() as snapshot, Gateway(snapshot, authority=authority, challenge=False) as g:

        def unsure(name: str, path: str, cookie: str) -> bool:
            with client(g, name) as c:
                found = c.get(f"https://site.example/{path}", headers={"Cookie": cookie} if cookie else {})
            assert found.status_code == 200
            return "stillweb-ambiguous" in found.headers

        assert not unsure("a", "", "")
        for path, cookie in zip("xy", cookies, strict=True):
            assert [unsure("a", path, cookie) for _ in range(3)] == [True] * 3
            assert [unsure("b", path, cookie) for _ in range(2)] == [True] * 2
        g.reset("a")
        assert unsure("a", "x", cookies[0])


def test_few_bytes_are_kept_and_every_answer_is_still_right(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    pages = {f"https://site.example/{n}": bytes([65 + n % 26]) * (20_000 + n) for n in range(60)}
    for url, body in pages.items():
        site.add(url, body)
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority, cache_bytes=100_000) as g,
        client(g, None) as c,
    ):
        for _ in range(3):
            for url, body in pages.items():
                assert c.get(url).content == body
        answerer = g._hub.answerer
        assert answerer.kept.bytes < 150_000
        assert sum(map(len, answerer.kept.memos.values())) < 10


def test_hosts_without_number_leave_memory_as_it_is(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a certificate and a context of some tens of kB."""
    monkeypatch.setattr(hub, "CACHED_CONTEXTS", 3)
    monkeypatch.setattr(ca, "CACHED_CONTEXTS", 3)
    site = Site(tmp_path / "snap")
    site.add("https://one.example/", b"one")
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g) as c:
        for number in range(8):
            assert c.get(f"https://none-{number}.example/").status_code == 504
            assert c.get("https://one.example/").text == "one"
        assert len(authority._contexts) <= 3
        assert len(g._hub._protocols) <= 3


def test_a_capture_asked_for_in_many_forms_is_in_memory_twice_at_most(
    tmp_path: Path, authority: Authority
) -> None:
    """Clients that number their requests ask for it in as many forms: what to send is the same each time."""
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"x" * 50_000)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g, None) as c:
        for number in range(20):
            assert (
                len(c.get("https://site.example/", headers={"X-Request-Id": f"{number}"}).content) == 50_000
            )
        kept = g._hub.answerer.kept
        wires = [memo.wire for known in kept.memos.values() for memo in known.values()]
        assert len(wires) == 20
        assert len({id(wire) for wire in wires}) == 1
        assert kept.bytes > 100_000  # both are counted


@pytest.mark.slow
def test_no_more_is_kept_for_a_session_that_names_itself_or_sends_long_fields(
    tmp_path: Path, authority: Authority
) -> None:
    site = Site(tmp_path / "snap")
    pages = {f"http://site.example/{n}": bytes([65 + n % 26]) * 20_000 for n in range(40)}
    for url, body in pages.items():
        site.add(url, body)
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority, cache_bytes=100_000) as g,
        client(g, "named") as c,
    ):
        for url, body in pages.items():
            assert [c.get(url).content for _ in range(2)] == [body] * 2
        gc.collect()
        hot = [one for one in gc.get_objects() if isinstance(one, CachedCapture)]
        assert sum(one.response.body in pages.values() for one in hot) < 10
        del hot
        kept = g._hub.answerer.kept
        for number in range(20):
            assert c.get(url, headers={"User-Agent": f"{number}" + "x" * 20_000}).content == body
        assert sum(len(raw) for known in kept.memos.values() for raw in known) < 200_000
        for url, body in pages.items():
            assert c.get(url).content == body
        assert kept.bytes <= 100_000


def test_a_file_that_is_not_surely_of_the_kind_asked_for_is_remembered_with_its_doubt(
    tmp_path: Path, authority: Authority
) -> None:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/a.txt", b"text", headers=(("Content-Type", "text/plain"),))
    wanted = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g, None) as c:
        found = [c.get("https://site.example/a.txt", headers=wanted) for _ in range(3)]
        assert [f.content for f in found] == [b"text"] * 3
        assert len({f.headers["stillweb-confidence"] for f in found}) == 1
        assert float(found[0].headers["stillweb-confidence"].partition(";")[0]) < 1
        assert sum(map(len, g._hub.answerer.kept.memos.values())) == 1
        assert g._hub.answerer.doubts.millionths > 2 * 10_000  # each time it is given
