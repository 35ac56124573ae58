"""Requests that failed while recording: tools fail as the real ones do when the network fails, and it is no miss."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.harness.curation.coverage import coverage
from stillweb.harness.task import Task
from stillweb.harness.tools import Toolset
from stillweb.harness.tools.recording import RecordingToolset
from stillweb.proxy import Authority
from stillweb.proxy.record.recorder import Recorder as RealRecorder
from stillweb.snapshots.contents.failures import TUNNEL, Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.browsed import Browsed, browsed
from tests.harness.tools.frozen import Recorder
from tests.proxy.dead import closed_port
from tests.snapshots.making import START

SITE = "http://lives.test"
DEAD = "http://dead.test/page"
TUNNELLED = "https://tunnel.test/page"


def fill(site: Recorder) -> None:
    site.add(
        f"{SITE}/", f"<title>T</title><h1>Mills</h1><a href={DEAD}>dead</a><script src={DEAD}?x></script>"
    )
    for request, reason in (
        (Request("GET", DEAD), "dns"),
        (Request("GET", f"{DEAD}?x"), "refused"),
        (Request(TUNNEL, "https://tunnel.test/"), "timeout"),
    ):
        Failure(request, reason, reason, START).write(site.writer)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(tmp_path_factory.mktemp("failed") / "s", fill, ["browser", "fetch"]) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "verdict", "error"),
    [
        (DEAD, "failed:dns", "net::ERR_NAME_NOT_RESOLVED"),
        (TUNNELLED, "failed:timeout", "net::ERR_CONNECTION_TIMED_OUT"),
        ("http://lacking.test/", "miss", "net::ERR_INTERNET_DISCONNECTED"),
    ],
)
def test_a_browser_tells_of_the_network(tools: Browsed, url: str, verdict: str, error: str) -> None:
    shown = tools.session()("browser_navigate", url=url)
    assert (shown.is_error, shown.meta["verdict"]) == (True, verdict)
    assert f"{error} at {url}" in shown.text


@pytest.mark.slow
def test_a_page_with_what_failed_is_whole(tools: Browsed) -> None:
    call = tools.session()
    shown = call("browser_navigate", url=f"{SITE}/")
    assert (shown.is_error, shown.meta["verdict"]) == (False, "failed")
    assert "missed" not in shown.meta
    assert "not in the snapshot" not in shown.text
    clicked = call("browser_click", element="dead", target="a")
    assert (clicked.is_error, clicked.meta["verdict"]) == (True, "failed:dns")
    assert "net::ERR_NAME_NOT_RESOLVED" in clicked.text


def test_fetch_says_the_same_while_recording_and_in_replay(tmp_path: Path) -> None:
    async def all_of(session: object, urls: list[str]) -> list[tuple[str, bool]]:
        results = [await session.call("fetch", {"url": url}) for url in urls]  # type: ignore[attr-defined]
        return [(result.text, result.is_error) for result in results]

    with closed_port() as port:
        urls = [f"http://127.0.0.1:{port}/a", f"https://127.0.0.1:{port}/b"]
        with (
            Writer.open(tmp_path / "s") as writer,
            RealRecorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
        ):
            session = RecordingToolset(recorder, ["fetch"]).session("one")
            told = asyncio.run(all_of(session, urls))
            asyncio.run(session.close())
    with Snapshot.open(tmp_path / "s") as snapshot:
        replayed = Toolset(snapshot, ["fetch"]).session("one")
        assert asyncio.run(all_of(replayed, urls)) == told
        result = asyncio.run(replayed.call("fetch", {"url": f"http://127.0.0.1:{port}/robots.txt"}))
    assert all(error for _, error in told)
    assert result.meta["verdict"] == "failed:refused"


def test_what_failed_covers_no_task(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        fill(Recorder(writer))
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = coverage([Task("t", "?", start_url=DEAD)], snapshot)
    assert [(need.verdict, need.answered) for need in found.needs] == [("failed:dns", False)]
