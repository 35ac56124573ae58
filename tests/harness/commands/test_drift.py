"""Drift between two recordings of a site that changed, and recording it anew."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

import stillweb
from stillweb.harness.task import Task
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.support.command_line import stillweb as command

FILLER = "Words that make this page long enough to be a page of its own. " * 10
TABLE = "<table><tr><th>Bird</th><th>{head}</th></tr><tr><td>{bird}</td><td>12</td></tr><tr><td>wren</td><td>3</td></tr></table>"
OLD = {
    "/same": f"<h1>Same</h1><p>{FILLER}",
    "/words": f"<h1>Words</h1><p>A heron stood there. {FILLER}",
    "/table": f"<h1>Table</h1><p>{FILLER}" + TABLE.format(head="Count", bird="heron"),
    "/gold": f"<h1>Gold</h1><p>The answer is egret. {FILLER}",
    "/gone": f"<h1>Gone</h1><p>The answer is bittern. {FILLER}",
    "/api": json.dumps({"items": [{"name": "heron", "count": 12}]}),
}
NEW = {
    "/same": OLD["/same"],
    "/words": f"<h1>Words</h1><p>A heron stood over there. {FILLER}",
    "/table": f"<h1>Table</h1><p>{FILLER}" + TABLE.format(head="Number", bird="heron"),
    "/gold": f"<h1>Gold</h1><p>The answer is kestrel. {FILLER}",
    "/api": json.dumps({"items": [{"name": "heron", "number": "12"}]}),
}


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Serve on a thread; yield the port."""
    server = ThreadingHTTPServer((host, port), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def site(pages: dict[str, str], port: int = 0) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "application/json" if self.path == "/api" else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with serving(Handler, port=port) as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_site_recorded_anew_and_its_drift(tmp_path: Path) -> None:
    with site(OLD) as port:
        base = f"http://127.0.0.1:{port}"
        urls = " ".join(f"{base}{path}" for path in OLD)
        done = command(
            "record", "-o", tmp_path / "s", "--", "sh", "-c", f"for u in {urls}; do curl -s $u; done"
        )
        assert done.code == 0, done.err
    stillweb.seal(tmp_path / "s", tmp_path / "old.wacz")
    with site(NEW, port):
        done = command("refresh", tmp_path / "old.wacz", "-o", tmp_path / "new", "--pause", "0")
        assert done.code == 0, done.err
    tasks = [
        {"id": path[1:], "question": "?", "answer": gold, "urls": [f"{base}{path}"]}
        for path, gold in [
            ("/same", "x"),
            ("/words", "heron"),
            ("/table", "heron"),
            ("/gold", "egret"),
            ("/gone", "bittern"),
        ]
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    words = ["drift", tmp_path / "old.wacz", tmp_path / "new", "--tasks", tmp_path / "tasks.jsonl"]
    told = json.loads(command(*words, "--json").out)
    assert {name: one["tier"] for name, one in told["tasks"].items()} == {
        "same": "same",
        "words": "text changed",
        "table": "shape changed",
        "gold": "gold gone",
        "gone": "unreachable",
    }
    assert told["pages"][f"{base}/api"]["tier"] == "shape changed"
    assert told["expired"] == ["gold", "gone"]
    assert command(*words, "--fail-on", "gold").code == 1
    assert command(*words[:2], tmp_path / "old.wacz", *words[3:], "--fail-on", "text").code == 0
    assert command("refresh", tmp_path / "old.wacz", "-o", tmp_path / "new").code == 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_views_are_recorded_anew(tmp_path: Path) -> None:
    with site(OLD) as port:
        url = f"http://127.0.0.1:{port}/words"
        with stillweb.record(tmp_path / "s") as recording:
            assert recording.visit(url).ok
    with site(NEW, port):
        done = command("refresh", tmp_path / "s", "-o", tmp_path / "new", "--pause", "0")
        assert done.code == 0, done.err
    with stillweb.open(tmp_path / "new") as snapshot:
        (view,) = snapshot.views()
        assert view.url == url
        assert b"over there" in (snapshot.resource("dom", view.address) or b"")


@dataclass
class BusySite:
    """A site on 127.0.0.2 that refuses each page some times before it gives it."""

    port: int = 0
    refusals: int = 0
    status: dict[str, int] = field(default_factory=dict)  # 429 where none is named
    asked: str | None = None
    log: list[tuple[str, float]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.2:{self.port}{path}"

    def times(self, path: str) -> list[float]:
        return [moment for known, moment in self.log if known == path]


@pytest.fixture
def busy() -> Iterator[BusySite]:
    site = BusySite()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.log.append((self.path, time.monotonic()))
            known = self.path in ("/a", "/b", "/c")
            refused = known and len(site.times(self.path)) <= site.refusals
            self.send_response(site.status.get(self.path, 429) if refused else 200 if known else 404)
            if refused and site.asked is not None:
                self.send_header("Retry-After", site.asked)
            body = f"<title>{self.path}</title><p>{FILLER}".encode()
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with serving(Handler, "127.0.0.2") as site.port:
        yield site


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_busy_host_is_left_alone_as_long_as_it_asks(busy: BusySite, tmp_path: Path) -> None:
    """A view and a page come at the second try; the refusals are no part of the snapshot."""
    with stillweb.record(tmp_path / "s") as recording:
        assert recording.visit(busy.url("/a")).ok
        assert recording.run(["curl", "-s", busy.url("/b")]) == 0
    busy.log.clear()
    busy.refusals, busy.status, busy.asked = 1, {"/b": 503}, "1"
    done = command("refresh", tmp_path / "s", "-o", tmp_path / "new", "--pause", "0")
    assert done.code == 0, done.err
    with stillweb.open(tmp_path / "new") as snapshot:
        pages = [capture for capture in snapshot.captures() if capture.url.endswith(("/a", "/b"))]
        assert [capture.status for capture in pages] == [200, 200]
        assert [view.url for view in snapshot.views()] == [busy.url("/a")]
    for path in ("/a", "/b"):
        first, second = busy.times(path)
        assert second - first >= 1


@pytest.mark.slow
def test_between_two_pages_of_a_host_is_a_pause(busy: BusySite, tmp_path: Path) -> None:
    with stillweb.record(tmp_path / "s") as recording:
        assert recording.run(["curl", "-s", *map(busy.url, ("/a", "/b", "/c"))]) == 0
    busy.log.clear()
    assert command("refresh", tmp_path / "s", "-o", tmp_path / "new", "--pause", "0.4").code == 0
    moments = [busy.times(path)[0] for path in ("/a", "/b", "/c")]
    assert all(later - before >= 0.35 for before, later in pairwise(moments))


@pytest.mark.slow
@pytest.mark.parametrize(("refusals", "asked", "tries"), [(9, "0", 3), (1, "3600", 1)])
def test_a_host_that_stays_busy_is_given_up_and_named(
    refusals: int, asked: str, tries: int, busy: BusySite, tmp_path: Path
) -> None:
    with stillweb.record(tmp_path / "s") as recording:
        assert recording.run(["curl", "-s", busy.url("/b")]) == 0
    busy.log.clear()
    busy.refusals, busy.asked = refusals, asked
    done = command("refresh", tmp_path / "s", "-o", tmp_path / "new", "--pause", "0")
    assert done.code == 1
    assert f"{busy.url('/b')} asks to be left alone for {asked} s. Refresh later" in done.err
    assert len(busy.times("/b")) == tries


SHOP = "https://shop.test"
Steps = tuple[dict[str, dict[str, str]], ...]
STEPS: Steps = ({"select": {"label": "Kind", "option": "tea"}},)


def recorded(
    path: Path,
    pages: dict[str, tuple[int, str, str]],
    views: dict[tuple[str, bool], str],
    steps_of_views: Steps = STEPS,
) -> stillweb.Snapshot:
    """Return a snapshot of pages (path: status, media type or Location, body) and views (path, with steps: text)."""
    with Writer.open(path) as writer:
        for number, (name, (status, media, body)) in enumerate(pages.items()):
            kind = "Location" if 300 <= status < 400 else "Content-Type"
            moment = datetime(2026, 1, 1, tzinfo=UTC)
            request = Request("GET", SHOP + name)
            writer.exchange(
                Exchange(
                    request, status, "", ((kind, media),), body.encode(), moment,
                    "s", 2 * number + 1, 2 * number + 2,
                )
            )  # fmt: skip
        for (name, stepped), text in views.items():
            url, steps = SHOP + name, steps_of_views if stepped else ()
            view = View(view_address(url, steps), url, url, "", steps, timestamp="2026-01-01T00:00:00Z")
            writer.view(view, {"dom": f"<p>{text} {FILLER}</p>".encode()})
    return stillweb.open(path)


def signing_in(digit: str) -> Steps:
    """Steps with a password, as a snapshot keeps it: each recording has its own pseudonym."""
    return ({"fill": {"label": "Password", "value": f"stillweb-secret-{digit * 24}"}},)


def test_a_view_behind_a_login_is_compared_and_not_tried_with_a_pseudonym(tmp_path: Path) -> None:
    old = recorded(tmp_path / "old", {}, {("/", True): "an egret"}, signing_in("1"))
    new = recorded(tmp_path / "new", {}, {("/", True): "a wren"}, signing_in("2"))
    tasks = [Task("one", "?", "egret", "exact", start_url=SHOP + "/")]
    assert stillweb.drift(old, new, tasks=tasks).tasks == {"one": ("gold gone", "no longer there: egret")}
    done = command("refresh", tmp_path / "old", "-o", tmp_path / "now", "--pause", "0")
    assert done.code == 1
    assert f"{SHOP}/#view=" in done.err
    assert f"`stillweb record -o {tmp_path / 'now'} --steps FILE` adds it" in done.err
    with stillweb.open(tmp_path / "now") as now:
        told = stillweb.drift(old, now).pages
    assert [(tier, why.split(";")[0]) for tier, why in told.values()] == [
        ("unreachable", "its steps hold a secret, so that `refresh` leaves it out")
    ]


def html(text: str) -> tuple[int, str, str]:
    return 200, "text/html", f"<p>{text} {FILLER}</p>"


@pytest.mark.parametrize(
    ("old", "new", "named", "gold", "tier", "why"),
    [
        # pages
        ({"/": html("egret")}, {"/": html("egret")}, "/", "egret", "same", ""),
        ({"/": html("egret now")}, {"/": html("egret then")}, "/", "egret", "text changed", ""),
        ({"/": html("egret")}, {"/": (301, "/new", ""), "/new": html("egret")}, "/", "egret", "same", ""),
        (
            {"/": html("egret")}, {"/": (301, "/new", ""), "/new": html("wren")}, "/", "egret",
            "gold gone", "no longer there: egret",
        ),
        (
            {"/": html("egret")}, {"/": (302, "/in", "")}, "/", "egret",
            "unreachable", "it redirects to a page that is not in the new snapshot",
        ),
        ({"/": (301, "/x", ""), "/x": html("egret")}, {"/": (404, "text/html", "no")}, "/", "egret", "unreachable", "status 404"),
        ({"/": html("egret")}, {"/": (200, "text/plain", "egret")}, "/", "egret", "shape changed", "text/html became text/plain"),
        ({"/": html("egret")}, {}, "/", "egret", "unreachable", "not in the new snapshot"),
        (
            {"/": (200, "application/json", '{"a": 1, "b": "egret"}')},
            {"/": (200, "application/json", '{"b":"egret","a":1}')}, "/", "egret", "same", "",
        ),
        (
            {"/": (200, "application/json", '{"a": "egret"}')},
            {"/": (200, "application/json", '{"a": ["egret"]}')}, "/", "egret", "shape changed", "3 differ: .a array",
        ),
        (
            {"/": (200, "text/csv", "bird,count\negret,1")},
            {"/": (200, "text/csv", "bird;count\negret;1")}, "/", "egret", "shape changed", "2 differ: bird,count",
        ),
        # what can't be judged is said
        ({"/": html("egret")}, {"/": html("egret")}, "/other", "egret", "same", f"not judged: {SHOP}/other is not in the old snapshot"),
        ({"/": html("egret")}, {"/": html("egret")}, None, "heron", "same", "not judged: it names no page, and its gold is on none"),
        ({"/": html("egret"), "/b": html("wren")}, {"/": html("egret"), "/b": html("x")}, None, "egret", "same", ""),
    ],
)  # fmt: skip
def test_the_tier_of_a_page(
    old: dict[str, tuple[int, str, str]],
    new: dict[str, tuple[int, str, str]],
    named: str | None,
    gold: str,
    tier: str,
    why: str,
    tmp_path: Path,
) -> None:
    task = Task("t", "?", gold, start_url=None if named is None else SHOP + named)
    with recorded(tmp_path / "old", old, {}) as before, recorded(tmp_path / "new", new, {}) as after:
        assert stillweb.drift(before, after, tasks=[task]).tasks == {"t": (tier, why)}


@pytest.mark.parametrize(
    ("old", "new", "tier"),
    [
        ({("/", True): "egret"}, {("/", True): "egret"}, "same"),
        ({("/", True): "egret now"}, {("/", True): "egret then"}, "text changed"),
        ({("/", True): "egret"}, {("/", True): "wren"}, "gold gone"),
        ({("/", True): "egret"}, {}, "unreachable"),
        ({("/", True): "wren"}, {}, "same"),  # of no use to the task
        ({("/", False): "egret"}, {("/", False): "wren"}, "gold gone"),  # filled in by a script
        ({("/", False): "egret"}, {}, "same"),  # recorded anew without a browser
        ({("/#/birds", False): "egret"}, {("/#/birds", False): "wren"}, "gold gone"),
    ],
)
def test_the_tier_of_a_view(
    old: dict[tuple[str, bool], str], new: dict[tuple[str, bool], str], tier: str, tmp_path: Path
) -> None:
    """The page of both recordings is one empty frame; what a task reads is in its views."""
    page, task = {"/": html("loading")}, Task("t", "?", "egret", start_url=f"{SHOP}/")
    with recorded(tmp_path / "old", page, old) as before, recorded(tmp_path / "new", page, new) as after:
        assert stillweb.drift(before, after, tasks=[task]).tasks["t"][0] == tier


CHOICE = """<!doctype html><title>Birds</title><h1>Birds</h1><form action=/list>
<label>Kind <select name=kind><option>duck<option>heron</select></label><button>Show</button></form><p>{filler}"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_views_with_steps_are_taken_anew(tmp_path: Path) -> None:
    """After a year a step leads to other birds, or to none, since the form names its field otherwise."""
    listed = "<!doctype html><title>List</title><h1>List</h1><p>We saw an {bird}. " + FILLER
    form = CHOICE.format(filler=FILLER)
    steps = [{"select": {"label": "Kind", "option": "heron"}}, {"click": {"text": "Show"}}]
    with site({"/": form, "/list?kind=heron": listed.format(bird="egret")}) as port:
        url = f"http://127.0.0.1:{port}/"
        with stillweb.record(tmp_path / "old") as recording:
            assert recording.visit(url, steps=steps).ok
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"id": "t", "question": "?", "answer": "egret", "start_url": url}) + "\n"
    )
    for label, tier in (("Kind", "gold gone"), ("Species", "unreachable")):
        new = tmp_path / label
        later = {"/": form.replace("Kind", label), "/list?kind=heron": listed.format(bird="ibis")}
        with site(later, port):
            done = command("refresh", tmp_path / "old", "-o", new, "--pause", "0")
            assert done.code == (1 if tier == "unreachable" else 0), done.err
        words = ("drift", tmp_path / "old", new, "--tasks", tmp_path / "tasks.jsonl")
        told = command(*words, "--json", "--fail-on", "gold")
        assert (json.loads(told.out)["tasks"]["t"]["tier"], told.code) == (tier, 1)
        assert json.loads(told.out)["expired"] == ["t"]
