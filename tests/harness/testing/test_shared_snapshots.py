"""Recording by tests over a snapshot that exists: which captures stay, and which tests may record."""

from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from stillweb.harness.testing.pytest_case import Case
from stillweb.harness.testing.shared_snapshots import SharedSnapshots
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.harness.plugin_project import run
from tests.proxy.origin import Answer, Origin

PLAIN = {"Content-Type": "text/plain"}
PAGE = "http://shelf.example/"


@pytest.fixture
def echo():
    """A site that says what it is told."""
    with Origin(lambda asked: Answer(headers=list(PLAIN.items()), body=b"heard " + asked.body)) as origin:
        yield origin


@contextmanager
def recorded(path, mode):
    """A test that records, and the snapshot put in place after it."""
    shelf = SharedSnapshots([path], mode)
    case = Case("a test", shelf)
    case.start()
    yield case
    case.close()
    shelf.close()


def bodies(path):
    with Snapshot.open(path) as snapshot:
        return sorted(snapshot.read_request(capture).body for capture in snapshot.captures())


def test_what_a_test_posted_before_is_kept_beside_what_it_posts_anew(tmp_path, echo):
    path = tmp_path / "made"
    with recorded(path, "once") as case, httpx.Client(transport=case.transport()) as client:
        client.post(echo.url, content=b"one", headers=PLAIN)
    with recorded(path, "new_episodes") as case:
        with httpx.Client(transport=case.transport()) as client:
            assert client.post(echo.url, content=b"one", headers=PLAIN).text == "heard one"
        with httpx.Client(proxy=case.proxy_url) as client:
            assert client.post(echo.url, content=b"one", headers=PLAIN).text == "heard one"
            assert client.post(echo.url, content=b"two", headers=PLAIN).text == "heard two"
    assert len(echo.asked) == 2
    assert bodies(path) == [b"one", b"two"]


@pytest.mark.parametrize("mode", ["new_episodes", "all"])
def test_what_others_recorded_is_kept_whole(tmp_path, echo, mode):
    path = tmp_path / "made"
    view = View(PAGE, PAGE, PAGE, "a page", timestamp="20250101000000", session="browser")
    profile = Profile(locale="de-DE")
    talk = {"session": "browser", "begin": 3, "end": 4, "messages": []}
    with Writer.open(path, profile=profile, keep_text=False) as writer:
        headers = (("Content-Type", "text/html"), ("Content-Length", "50"))
        request = Request("GET", PAGE, (("Host", "shelf.example"),))
        more = {"session": "browser", "begin": 1, "end": 2, "extra": {"WARC-Truncated": "disconnect"}}
        writer.exchange(
            Exchange(request, 200, "OK", headers, b"<p>half", datetime(2025, 1, 1, tzinfo=UTC), **more)
        )
        writer.view(view, {"dom": b"<p>whole</p>"})
        writer.metadata(f"{PAGE}talk", talk)
    with recorded(path, mode) as case, httpx.Client(transport=case.transport()) as client:
        client.get(f"{echo.url}/new")
    with Snapshot.open(path) as snapshot:
        broken = {capture.url: capture.truncated for capture in snapshot.captures()}
        assert broken == {PAGE: "disconnect", f"{echo.url}/new": ""}
        assert snapshot.views() == [view]
        assert snapshot.resource("dom", PAGE) == b"<p>whole</p>"
        assert list(snapshot.conversations()) == [(f"{PAGE}talk", talk)]
        assert snapshot.profile == profile
        assert snapshot.settings["keep_text"] is False


pytest_plugins = ["pytester"]

CODE = """
import pytest
@pytest.mark.snapshot("made")
def test_it(stillweb):
    assert stillweb.recording
"""


@pytest.mark.slow
def test_workers_of_xdist_refuse_to_record(pytester):
    result = run(pytester, CODE, "-n", "1", "--stillweb-mode=once")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*several processes can't record one snapshot; record without -n*"])
    assert not (pytester.path / "made").exists()
