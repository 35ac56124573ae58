"""An exploration that stopped between finding a view and reading its controls goes on with them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.explore.graph import Graph
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin

STREAMED = """<!DOCTYPE html><title>Mills</title><h1>Mills</h1><p>The mills along the river were built over four centuries.</p>
<p id=out></p><script>
new EventSource("/said").onmessage = (e) => { for (const name of e.data.split(" ")) {
  const b = document.createElement("button"); b.textContent = name; b.onclick = () => { out.textContent = `about ${name}`; };
  document.body.append(b); } };
</script>"""


class Stopped(Exception):
    """Exception that ends an exploration, as Ctrl-C does."""


async def said(over: threading.Event) -> AsyncIterator[bytes]:
    """A stream that stays open until the test is over."""
    yield b"data: Wind Water\n\n"
    while not over.is_set():
        await asyncio.sleep(0.01)


def streaming(asked: Asked, over: threading.Event) -> Answer:
    if asked.path == "/said":
        return Answer(headers=[("Content-Type", "text/event-stream")], body=said(over))
    return Answer(headers=[("Content-Type", "text/html")], body=STREAMED.encode())


def stopped_and_gone_on(path: Path, url: str, at: int, depth: int) -> Graph:
    """The graph of an exploration that was ended when it had just stored as many views, and that was begun again."""

    def stop(count: int, address: str) -> None:
        if count == at:
            raise Stopped

    profile = complete(Profile())
    limits = Limits(views=20, depth=depth, obey_robots=False, parallel=1)
    with (
        Writer.open(path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(path / "state")) as recorder,
    ):
        with pytest.raises(Stopped):
            Explorer(recorder, writer, profile, limits=limits).explore(url, stop)
        return Explorer(recorder, writer, profile, limits=limits, prefix="again").explore(url)


def ways(graph: Graph) -> list[list[str]]:
    return sorted([str(step["click"].get("name")) for step in node.steps] for node in graph.views)


@pytest.mark.slow
def test_controls_that_a_stream_brought_are_read_again(tmp_path: Path) -> None:
    over = threading.Event()
    with Origin(lambda asked: streaming(asked, over)) as origin:
        graph = stopped_and_gone_on(tmp_path, f"http://127.0.0.1:{origin.port}/", 1, 1)
        over.set()
    assert (ways(graph), graph.failed) == ([[], ["Water"], ["Wind"]], [])


NESTED = """<!DOCTYPE html><title>Mills</title><h1>Mills</h1><button onclick="show('Wind')">Wind</button>
<button onclick="show('Water')">Water</button><div id=out></div><script>const show = (name) => {
  out.innerHTML = `<h2>${name}</h2><button onclick="out.append('more of ${name}')">More ${name}</button>`; };</script>"""


def nested(asked: Asked) -> Answer:
    return Answer(headers=[("Content-Type", "text/html")], body=NESTED.encode())


@pytest.mark.slow
def test_no_view_is_forgotten_that_was_found_last(tmp_path: Path) -> None:
    with Origin(nested) as origin:
        graph = stopped_and_gone_on(tmp_path, f"http://127.0.0.1:{origin.port}/", 2, 2)
    assert (graph.ended, graph.failed) == ("all was tried", [])
    assert [way for way in ways(graph) if "More" in str(way)] == [
        ["Water", "More Water"],
        ["Wind", "More Wind"],
    ]
