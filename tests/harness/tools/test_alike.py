"""Evidence for what was recorded often: the same in whatever order a session asks, and never what says something else."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from stillweb.harness.runs.given_text import GivenText
from stillweb.harness.tools.store import Store, first_alike
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site

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
