"""Drift between two recordings of a site that changed, and recording it anew."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

import stillweb
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

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    status: int = 429
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
            self.send_response(site.status if refused else 200 if known else 404)
            if refused and site.asked is not None:
                self.send_header("Retry-After", site.asked)
            body = f"<title>{self.path}</title><p>{FILLER}".encode()
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.2", 0), Handler)
    site.port = server.server_address[1]
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_host_is_left_alone_as_long_as_it_asks(status: int, busy: BusySite, tmp_path: Path) -> None:
    """A view and a page come at the second try; the refusals are no part of the snapshot."""
    with stillweb.record(tmp_path / "s") as recording:
        assert recording.visit(busy.url("/a")).ok
        assert recording.run(["curl", "-s", busy.url("/b")]) == 0
    busy.log.clear()
    busy.refusals, busy.status, busy.asked = 1, status, "1"
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
