"""The site whose answers depend on what it was told, given a face that can be operated: explored without steps, each of
its states comes back by its address. `STILLWEB_EXPLORE=1` goes two actions deep; else it is one."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.check.check import CheckReport, check
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.explore.graph import Graph
from stillweb.proxy.explore.moves import Choices
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.capture import Response
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.support import stateful_site
from tests.support.stateful_site import ITEMS, Site, serve

DEPTH = 2 if os.environ.get("STILLWEB_EXPLORE") else 1
# What the pages offer; of a kind no more than two where it is a step deep, as each is reached alike.
SOME = slice(None if DEPTH > 1 else 2)
CATEGORIES = ["", *stateful_site.CATEGORIES[1:][SOME]]
YEARS = stateful_site.YEARS[SOME]
GREETINGS = dict([*stateful_site.GREETINGS.items()][SOME])


def options(name: str, values: list[str]) -> str:
    return "".join(f'<option value="{value}">{value or "any " + name}</option>' for value in values)


LIST = (
    f"<form method=post action=/filter><label>Category <select name=category>{options('category', CATEGORIES)}</select>"
    f"</label><button>Show category</button></form>"
    f"<form method=post action=/period><label>Year <select name=year>{options('year', YEARS)}</select></label>"
    f"<button>Show year</button></form><a href='/sort?by=year'>By year</a> <a href='?page=2'>Page 2</a>"
    "<form method=post action=/logout><button>Log out</button></form>"
    "<form method=post action=/cart><input type=hidden name=item value=x><button>Add to cart</button></form>"
)
SHELF = (
    "<label><input type=radio name=shelf value=fiction> fiction</label>"
    "<label><input type=radio name=shelf value=travel> travel</label><script>for (const r of document.querySelectorAll('input'))"
    " r.onchange = () => { document.cookie = 'shelf=' + r.value + ';path=/'; location.reload(); }</script>"
)
HELLO = "".join(f"<a href='/language?to={language}'>In {language}</a> " for language in GREETINGS)
GRID = (
    "<a href=\"javascript:void(document.getElementById('f').elements.__EVENTTARGET.value='next',"
    "document.getElementById('f').submit())\">Further</a>"
)
ASK = (
    "<label>Notes on <select id=s><option>-</option><option>tools</option><option>books</option></select></label><p id=o></p>"
    "<button id=d>Drop the first</button><script>s.onchange = async () => { const a = await fetch('/api/search', {method: 'POST',"
    " body: JSON.stringify({q: s.value, nonce: Math.random()})}); o.textContent = (await a.json()).rows.join(' '); };"
    "d.onclick = () => fetch('/things/1', {method: 'DELETE'});"
    "const b = document.createElement('button'); b.textContent = 'Tidy'; b.onclick = () => fetch('/things/2', {method: 'DELETE'});"
    " document.body.append(b);</script>"
)
FACES = {"/list": LIST, "/shelf": SHELF, "/hello": HELLO, "/grid.aspx": GRID, "/about": ASK}


class Browsable(Site):
    """The site with something to operate on its pages. `asked` is every request that came."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def handle(self, request: Request) -> Response:
        path = re.sub(r"^https?://[^/]+|\?.*$", "", request.url)
        self.asked.append(f"{request.method} {path}")
        response = super().handle(request)
        if path not in FACES or response.status != 200:
            return response
        form = (
            "<form method=post id=f><input type=hidden name=__EVENTTARGET>"
            if path == "/grid.aspx"
            else "<form>"
        )
        body = response.body.decode().replace("<form>", FACES[path] + form).encode()
        headers = [(n, v) for n, v in response.headers if n.lower() != "content-length"]
        return replace(response, headers=(*headers, ("Content-Length", str(len(body)))), body=body)


@contextmanager
def explored(
    folder: Path, site: Site, *paths: str, depth: int
) -> Iterator[tuple[list[Graph], Snapshot, Gateway]]:
    profile = complete(Profile())
    authority = Authority.load_or_create(folder / "state")
    with (
        serve(site) as base,
        Writer.open(folder / "snap", profile=profile) as writer,
        Recorder(writer, authority=authority) as recorder,
    ):
        explorer = Explorer(
            recorder, writer, profile, limits=Limits(views=90, depth=depth), choices=Choices(links="site")
        )
        graphs = [explorer.explore(f"{base}{path}") for path in paths]
    with Snapshot.open(folder / "snap") as snapshot, Gateway(snapshot, authority=authority) as gateway:
        yield graphs, snapshot, gateway


def listed(category: str = "", year: str = "", page: int = 1, by_year: bool = False) -> list[str]:
    rows = [name for name, c, y in ITEMS if category in ("", c) and year in ("", y)]
    if by_year:
        rows.sort(key=lambda row: (row.split("-")[1], row))
    return [f"{len(rows)} rows, page {page}", *rows[(page - 1) * 5 : page * 5]]


def states(depth: int) -> list[list[str]]:
    """Return the states that the list can show after so many actions."""
    found = [listed(), listed(page=2), listed(by_year=True)]
    found += [listed(category) for category in CATEGORIES[1:]] + [listed(year=year) for year in YEARS[1:]]
    if depth > 1:
        found += [listed(category, year) for category in CATEGORIES[1:] for year in YEARS[1:]]
        found += [listed(category, page=2) for category in CATEGORIES[1:]]
        found += [listed(year=year, page=2) for year in YEARS[1:]] + [listed(page=2, by_year=True)]
        found += [listed(year=year, by_year=True) for year in YEARS[1:]]  # a category is by year as it is
    return found


def texts(graph: Graph, snapshot: Snapshot) -> dict[str, str]:
    """Address -> what it gives."""
    return {node.address: (snapshot.resource("text", node.address) or b"").decode() for node in graph.views}


def given_back(name: str, words: list[str], found: dict[str, str], report: CheckReport) -> None:
    """A state has an address, which gives its words now and in replay."""
    ways = [address for address, text in found.items() if all(word in text for word in words)]
    assert ways, (name, words)
    same = {view.address for view in report.views if view.text == 1.0 and not view.missed and not view.error}
    assert set(ways) <= same, report.rows()
    sys.stdout.write(f"{name}: {words[0]!r}: {len(ways)} of {len(found)} views, {ways[0]}\n")


# What a page shows without any step; no state of these hangs from anything that an exploration may do.
PLAIN = {
    "/": "Not signed in",
    "/greeting": "Good day",
    "/old": "came from old",
    "/cart": "empty",
    "/jobs": "none",
    "/count": "0",
    "/contact": "Write to us",
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_state_comes_back_by_its_address(tmp_path: Path) -> None:
    site = Browsable()
    with explored(tmp_path, site, "/list", depth=DEPTH) as (graphs, snapshot, gateway):
        found = texts(graphs[0], snapshot)
        report = check(snapshot, gateway)
        for wanted in states(DEPTH):
            given_back("/list", [wanted[0], "\n".join(wanted[1:])], found, report)
        assert report.share("text") == 1.0, report.rows()
        assert not [view for view in report.views if view.missed or view.error], report.rows()
    assert not [one for one in site.asked if "logout" in one or one == "POST /cart"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_states_in_cookies_postbacks_and_questions_by_script(tmp_path: Path) -> None:
    site = Browsable()
    more = PLAIN if DEPTH > 1 else ()
    with explored(tmp_path, site, "/shelf", "/hello", "/grid.aspx", "/about", *more, depth=DEPTH) as (
        graphs,
        snapshot,
        gateway,
    ):
        found = [texts(graph, snapshot) for graph in graphs]
        report = check(snapshot, gateway)
        for word in ("Shelf all", "Shelf fiction", "Shelf travel"):
            given_back("/shelf", [word], found[0], report)
        for greeting in GREETINGS.values():
            given_back("/hello", [greeting], found[1], report)
        for number in range(1, DEPTH + 2):
            given_back("/grid.aspx", [f"Grid page {number}: {number * 11}"], found[2], report)
        asked = [[name for name, kind, _ in ITEMS if kind == category] for category in ("tools", "books")]
        for rows in [*asked, *([[name for name, _, _ in ITEMS]] if DEPTH > 1 else [])]:
            given_back("/about", [" ".join(rows)], found[3], report)
        for path, one in zip(PLAIN, found[4:], strict=False):
            given_back(path, [PLAIN[path]], one, report)
        assert any("DELETE" in why for _, why in graphs[3].left)
        assert report.share("text") == 1.0, report.rows()
        assert not [view for view in report.views if view.missed or view.error], report.rows()
    assert not [one for one in site.asked if one.startswith("DELETE")]


@pytest.mark.parametrize("depth", [1, 2])
def test_the_list_of_states_names_each_once(depth: int) -> None:
    assert len({"\n".join(one) for one in states(depth)}) == len(states(depth))
