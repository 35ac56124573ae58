"""A site explored without steps gives back its states, each once, and goes on where it stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.check.check import check
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.explore.graph import Graph, Node, graph_uri
from stillweb.proxy.explore.moves import FILE, Choices
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, Handler, mill_site, serve
from tests.snapshots.text.test_text import make_pdf

clicked: list[str] = []


def with_dangers() -> Handler:
    mills = mill_site()

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        clicked.append(f"{method} {path}")
        if path == "/robots.txt":
            return (
                200,
                {"Content-Type": "text/plain"},
                b"User-agent: *\nDisallow: /notes\nDisallow: /private\n",
            )
        if path == "/harm":
            page = (
                "<title>Harm</title><h1>Cart</h1><button onclick=\"fetch('/boom')\">Delete all</button>"
                "<a href='/harm?logout=1'>Log out</a><form method=post action=/boom><input name=q><button>Send</button>"
                "</form><a href='/private?x'>Private</a><button onclick=\"o.textContent='shown'\">Details</button><p id=o>"
                "<details><summary>Open me</summary>inside</details><a href='/harm?size=2'>Size 2</a>"
                "<a href='/harm?dup=1'>Same again</a><a href='http://127.0.0.2/harm'>Away</a><a href='/paper.PDF?v=1'>Paper</a>"
                + ("<p>two</p>" if "size=2" in path else "")
            )
            return 200, {"Content-Type": "text/html"}, page.encode()
        if path.startswith("/harm?"):
            return handle(method, "/harm", body, headers) if "dup" in path else (
                200, {"Content-Type": "text/html"}, b"<title>Harm</title><p>two</p>")  # fmt: skip
        return mills(method, path, body, headers)

    return handle


def explore(folder: Path, base: str, path: str, limits: Limits, choices: Choices | None = None) -> Graph:
    profile = complete(Profile())
    with (
        Writer.open(folder / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(folder / "state")) as recorder,
    ):
        return Explorer(recorder, writer, profile, limits=limits, choices=choices).explore(f"{base}{path}")


@pytest.mark.slow
def test_harm_is_never_done_and_robots_are_obeyed(tmp_path: Path) -> None:
    clicked.clear()
    with serve(with_dangers()) as base:
        graph = explore(tmp_path, base, "/harm", Limits(views=20, depth=1), Choices(links="site"))
        refused = explore(tmp_path / "no", base, "/private", Limits(views=5))
    assert "GET /robots.txt" in clicked
    assert not [line for line in clicked if "boom" in line or "logout" in line or line == "GET /private?x"]
    assert f"{base}/private?x" in graph.robots
    names = [json.dumps(node.steps) for node in graph.views]
    assert any("Details" in name for name in names)
    assert any("summary" in name for name in names)
    assert any("Size 2" in name for name in names)
    assert not any("Same again" in name for name in names)  # another way to what is known
    assert {left for left, _ in graph.left} >= {"button Delete all", "link Log out"}
    assert [left for left, why in graph.left if why == FILE] == [f"{base}/paper.PDF?v=1"]
    assert not [line for line in clicked if "paper" in line]
    assert refused.views == []
    assert refused.ended == "robots.txt forbids it"


@pytest.mark.slow
@pytest.mark.whole_browser
def test_a_link_that_proves_to_lead_to_a_pdf_gives_no_view(tmp_path: Path) -> None:
    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if path == "/get":
            return 200, {"Content-Type": "application/pdf"}, make_pdf("Wells")
        return 200, {"Content-Type": "text/html"}, b"<title>P</title><p>Papers</p><a href=/get>Get it</a>"

    with serve(handle) as base:
        graph = explore(
            tmp_path, base, "/", Limits(views=5, depth=1, obey_robots=False), Choices(links="site")
        )
    assert [node.address for node in graph.views] == [f"{base}/"]
    ((_, why),) = graph.left
    assert (why, graph.walls) == (f"leads to a PDF, {base}/get: fetched, and no view", [])
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert f"{base}/get" in {capture.url for capture in snapshot.captures()}


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C does here what it does in a plain program, whatever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_CHILD = """
import sys, time
from pathlib import Path
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.writer import Writer

def wait(count, address):
    if count == 3:
        print(flush=True)
        time.sleep(600)

folder, url = Path(sys.argv[1]), sys.argv[2]
profile = complete(Profile())
with Writer.open(folder / "snap", profile=profile) as writer:
    with Recorder(writer, authority=Authority.load_or_create(folder / "state")) as recorder:
        limits = Limits(8, depth=1, obey_robots=False, parallel=1)
        Explorer(recorder, writer, profile, limits=limits).explore(url, wait)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_killed_and_interrupted_it_goes_on_and_finds_all_states_each_once(tmp_path: Path) -> None:
    clicked.clear()
    counts: list[int] = []
    later: list[int] = []

    def stop(count: int, address: str) -> None:
        counts.append(count)
        if count == 4:
            signal.raise_signal(signal.SIGINT)

    with serve(with_dangers()) as base:
        words = [sys.executable, "-c", _CHILD, str(tmp_path), f"{base}/"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as first:
            assert first.stdout is not None
            assert first.stdout.readline(), "it ended by itself"
            os.killpg(first.pid, signal.SIGKILL)
        profile, limits = complete(Profile()), Limits(views=8, depth=1, obey_robots=False)
        with (
            Writer.open(tmp_path / "snap", profile=profile) as writer,
            Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
        ):
            with pytest.raises(KeyboardInterrupt):
                Explorer(recorder, writer, profile, limits=limits).explore(f"{base}/", stop)
            explorer = Explorer(recorder, writer, profile, limits=limits, prefix="again")
            graph = explorer.explore(f"{base}/", lambda count, address: later.append(count))
    assert (counts[0], later[0] > 4) == (3, True), "a known view was found again"
    assert graph.ended in ("all was tried", "8 views")
    ways = [json.dumps(node.steps) for node in graph.views]
    for wanted in ("[]", '"Wind"', '"Water"', '"South"', '"North"', '"Notes"'):
        assert any(wanted in way for way in ways), wanted
    assert len({node.look for node in graph.views}) == len(graph.views)
    assert not [line for line in clicked if "robots" in line]
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert Graph.from_json(snapshot.metadata(graph_uri(f"{base}/"))) == graph
        stored = [view.address for view in snapshot.views()]
        assert len(stored) == len(set(stored))
        assert {node.address for node in graph.views} <= set(stored)
        for node in graph.views:
            assert snapshot.resource("text", node.address)
            assert snapshot.resource("view", node.address)
    assert not list((tmp_path / "snap").glob("*explore.json"))
    assert not verify(tmp_path / "snap")


@pytest.mark.slow
def test_addresses_that_are_spelt_alike_are_told_apart(tmp_path: Path) -> None:
    """The knowledge of one page is no start for another."""
    profile = complete(Profile())
    with (
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
        serve(with_dangers()) as base,
    ):
        explorer = Explorer(recorder, writer, profile, limits=Limits(views=2, depth=1, obey_robots=False))
        left = Graph(f"{base}/a/b", ended="600 s")
        left.views = [Node(left.url, [], "Of another", left.url, 0, "look")]
        explorer.save(left.url, left.to_json())
        graph = explorer.explore(f"{base}/a?b")
    assert "Of another" not in {node.title for node in graph.views}
    assert len(list((tmp_path / "snap").glob("*explore.json"))) == 1


@pytest.mark.slow
def test_what_is_kept_while_it_goes_on_holds_no_secret(tmp_path: Path) -> None:
    secret = "tok-5f2b8a1c9d7e4f60"

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = "<p>two</p>" if "?" in path else ""
        return (
            200,
            {"Content-Type": "text/html", "Set-Cookie": f"session={secret}"},
            f"<title>P</title><h1>Mine</h1><a href='/mine?of={secret}&n=2'>Mine, {secret}</a>{shown}".encode(),
        )

    kept: list[str] = []
    with serve(page) as base:
        profile = complete(Profile())
        with (
            Writer.open(tmp_path / "snap", profile=profile) as writer,
            Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
        ):

            def look(count: int, address: str) -> None:
                kept.extend(p.read_text() for p in (tmp_path / "snap").glob("*explore.json"))

            explorer = Explorer(recorder, writer, profile, limits=Limits(views=3, depth=2, obey_robots=False))
            graph = explorer.explore(f"{base}/mine", look)
            explorer.save(f"{base}/mine", graph.to_json())
            kept.extend(p.read_text() for p in (tmp_path / "snap").glob("*explore.json"))
    assert any("Mine, " in text for text in kept)
    assert not [text for text in kept if secret in text]


@pytest.mark.slow
def test_a_field_that_changes_the_page_is_sent_with_its_form_too(tmp_path: Path) -> None:
    """Choosing any group frees a check box, which is one look; what each group is for comes with the button."""

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        asked = path.partition("?")[2] or "nothing"
        form = (
            "<form><label>Group <select name=g onchange='d.disabled=false'><option>none<option>kind<option>age</select></label>"
            "<label><input type=checkbox name=d id=d disabled> Downwards</label>"
            "<label>Rows <input name=rows value=25></label><button>Update</button></form>"
        )
        shown = f"<title>Rows</title><h1>Rows</h1><p>asked {asked}</p>{form if asked == 'nothing' else ''}"
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/rows", Limits(views=9, depth=1, obey_robots=False))
    found = {node.url.partition("/rows")[2] for node in graph.views}
    assert graph.ended == "all was tried"
    assert {"", "?g=kind&rows=25", "?g=age&rows=25", "?g=none&rows=1", "?g=none&rows=10"} <= found
    assert {node.depth for node in graph.views} == {0, 1}


@pytest.mark.slow
def test_what_can_not_be_clicked_is_told_and_the_rest_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.proxy.browser.driver.ACTION_MS", 2000)

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        cover = "<div style='position:absolute;inset:0;height:90px'></div>"
        shown = f"<title>P</title><button style='height:50px'>Covered</button>{cover}<p>asked {path}</p>"
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/p", Limits(views=3, depth=1, obey_robots=False))
    assert graph.ended == "all was tried"
    assert [why for way, why in graph.failed if "Covered" in way and "can't be used" in why]


@pytest.mark.slow
def test_links_that_fold_or_show_something_are_no_places(tmp_path: Path) -> None:
    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = """<title>Folds</title><a href="#there">To the end</a> <a href="#top">Up</a> <a href="#gone">Columns</a>
            <a href="#second">Second</a> <fieldset id=box><legend><a href="#box">Box</a></legend><p id=inner>inside the box</p></fieldset>
            <p id=first>first panel</p><p id=second hidden>second panel</p><p id=columns hidden>three columns</p><h2 id=there>End</h2>
            <script>onclick = (e) => { const id = e.target.hash && e.target.hash.slice(1);
              if (id === "gone") columns.hidden = false; if (id === "box") inner.hidden = true;
              if (id === "second") [first.hidden, second.hidden] = [true, false]; };</script>"""
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/folds", Limits(views=9, depth=1, obey_robots=False))
    assert graph.ended == "all was tried"
    done = [json.loads(way)[0]["click"]["name"] for way in graph.done]
    assert sorted(done) == ["Box", "Columns", "Second"]
    assert len(graph.views) == 4


@pytest.mark.slow
def test_under_a_dialog_only_the_dialog_is_operated(tmp_path: Path) -> None:
    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = """<title>Errors</title><button onclick="d.hidden = false">Details</button> <button onclick="p.hidden = false">More</button>
            <p id=p hidden>more</p><div id=d hidden style="position: fixed; inset: 0; background: white"><h2>An error</h2>
            <button onclick="d.hidden = true; this.closest('div').remove(); document.title = 'Closed'">Close</button></div>"""
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/errors", Limits(views=9, depth=2, obey_robots=False))
    assert graph.ended == "all was tried"
    assert not graph.failed
    ways = [" > ".join(step["click"]["name"] for step in json.loads(way)) for way in graph.done]
    assert sorted(ways) == ["Details", "Details > Close", "More", "More > Details", "More > More"]


@pytest.mark.slow
def test_bars_and_drawn_boxes_that_are_fixed_below_a_dialog_are_not_waited_for(tmp_path: Path) -> None:
    """A bar that stays in its place, and radio buttons drawn by their labels: fixed, as a dialog is, but below it."""

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = """<title>Guide</title><nav style="position: fixed; top: 0"><button onclick="d.hidden = false">Search</button></nav>
            <p style="margin-top: 4em"><input type=radio name=code id=b style="position: fixed; opacity: 0; pointer-events: none"
            onchange="p.hidden = false"><label for=b>b.py</label><p id=p hidden>print(1)</p>
            <div id=d hidden style="position: fixed; inset: 0"><div style="position: absolute; inset: 0; background: white"></div>
            <div style="position: relative; width: 50%"><button onclick="this.textContent = 'Few'">Many</button></div></div>
            <div style="position: fixed; bottom: 40%"><button onclick="this.textContent = 'Off'">Help</button></div>"""
        opened = "<script>d.hidden = false</script>" if "open" in path else ""
        return 200, {"Content-Type": "text/html"}, (shown + opened).encode()

    tried = {}
    with serve(page) as base:
        for name in ("shut", "open"):
            graph = explore(tmp_path / name, base, f"/{name}", Limits(views=9, depth=1, obey_robots=False))
            assert (graph.ended, graph.failed) == ("all was tried", [])
            given = [target for way in graph.done for step in json.loads(way) for target in step.values()]
            tried[name] = sorted(target.get("name", target.get("label")) for target in given)
    # under the dialog: what is in it, and what lies over it
    assert tried == {"shut": ["Help", "Search", "b.py"], "open": ["Help", "Many"]}


@pytest.mark.slow
def test_what_a_click_goes_through_or_has_no_size_is_not_waited_for(tmp_path: Path) -> None:
    """Switches of a theme for narrow screens: a check box that nobody sees, with labels that nobody can click."""

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = """<title>Theme</title><form action="http://["><input name=q></form><input type=checkbox id=search style="display: none">
            <label for=search style="pointer-events: none">Search</label><label for=search style="display: block; width: 0; height: 0"></label>
            <button style="opacity: 0; pointer-events: none">Clear</button>
            <input type=checkbox id=more style="opacity: 0" onchange="p.hidden = !checked"><label for=more>More</label><p id=p hidden>more</p>"""
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/theme", Limits(views=9, depth=1, obey_robots=False))
    assert graph.ended == "all was tried"
    assert not graph.failed
    assert [json.loads(way) for way in graph.done] == [[{"check": {"label": "More"}}]]


@pytest.mark.slow
def test_boxes_that_only_their_labels_draw_are_checked_and_come_back(tmp_path: Path) -> None:
    """The page shows more once the box is checked, and the box itself can't be clicked."""

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        shown = """<title>Switches</title><style>input { display: none } p { display: none } #dark:checked ~ #one { display: block }</style>
            <input type=checkbox id=dark><label for=dark>Dark</label><input type=radio name=r id=r1 checked><label for=r1>List</label>
            <input type=radio name=r id=r2 onchange="two.style.display = 'block'"><label for=r2><a href="/away">Map</a> view</label>
            <p id=one>shown when dark</p><p id=two>shown as a map</p>"""
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/switches", Limits(views=9, depth=1, obey_robots=False))
    assert graph.ended == "all was tried"
    assert not graph.failed
    found = {json.dumps(node.steps): node.address for node in graph.views}
    dark = '[{"check": {"label": "Dark"}}]'
    assert set(found) == {"[]", dark, '[{"check": {"label": "Map view"}}]'}
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert {view.address for view in snapshot.views()} == set(found.values())
        assert "shown when dark" in str(snapshot.resource("text", found[dark]))
        with Gateway(snapshot, authority=Authority.load_or_create(tmp_path / "state")) as gateway:
            assert check(snapshot, gateway).passed(text=1.0)


@pytest.mark.slow
def test_a_click_that_is_slow_to_lead_anywhere_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.proxy.browser.driver.ACTION_MS", 3000)
    asked: list[str] = []
    waited = threading.Event()

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if "by=" in path:
            asked.append(path)
            if len(asked) == 1:
                waited.wait(8)
        other = "down" if path.endswith("by=up") else "up"
        shown = f"<title>P</title><p>asked {path}</p><a href='/p?by={other}'>Sort</a>"
        return 200, {"Content-Type": "text/html"}, shown.encode()

    with serve(page) as base:
        graph = explore(tmp_path, base, "/p", Limits(views=3, depth=1, obey_robots=False))
        waited.set()
    assert not [view for view in graph.views if view.url.endswith("down")], asked
