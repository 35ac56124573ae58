"""Files fetched for the browser, beside it: linked files and the scripts of workers."""

from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.steps import Flow, parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

PAGE = """<meta charset=utf-8><title>Files</title><p>Files and the time</p><p id=o></p>
<script>document.cookie = "who=é";
new Worker("/moved.js").onmessage = (e) => { o.textContent = e.data; };</script>
<a href=/paper.pdf>A paper</a> <a href=/moved.pdf>Another</a> <a href=/round.pdf>None</a>"""


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    known = "sid=1" in headers.get("cookie", "")
    if path in ("/moved.js", "/moved.pdf", "/round.pdf"):
        return 302, {"Location": path.replace("moved", "there")}, b""
    if path == "/there.js":
        return (
            200 if known else 403,
            {"Content-Type": "text/javascript"},
            b"postMessage(`at ${Date.now()}`)",
        )
    if path.endswith(".pdf"):
        if not known:
            return 200, {"Content-Type": "text/html"}, b"<p>Please log in"
        return 200, {"Content-Type": "application/pdf"}, b"%PDF-1.4\n%%EOF"
    return 200, {"Content-Type": "text/html", "Set-Cookie": "sid=1; Path=/"}, PAGE.encode()


@pytest.mark.slow
def test_cookies_of_any_letters_go_along_and_redirects_are_followed_with_them(tmp_path: Path) -> None:
    profile, authority = complete(Profile()), Authority.load_or_create(tmp_path / "state")
    with (
        serve(handle) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=authority) as recorder,
    ):
        odd = Flow(f"{base}/odd", parse_steps("- goto: 'http://[::1'"))
        found, stopped = Fetcher(recorder, writer, profile).fetch([], [Flow(f"{base}/", ()), odd], pdfs=True)
    assert found.ok, found
    got = {one.url.removeprefix(base): (one.media, one.error) for one in found.documents}
    whole = ("application/pdf", None)
    assert got == {"/paper.pdf": whole, "/moved.pdf": whole, "/round.pdf": ("", "more than 20 redirects")}
    assert stopped.error == "step 1: goto: http://[::1: is not a URL (Invalid IPv6 URL)"
    with Snapshot.open(tmp_path / "snap") as snapshot:
        text = snapshot.resource("text", found.views[0]) or b""
        assert b"at 17356896" in text, "the worker is frozen"
        assert not any("never quiet" in note for note in found.notes)
        with Gateway(snapshot, authority=authority) as gateway:
            report = check(snapshot, gateway)
    assert [view.same for view in report.views] == [True, True], report


@pytest.mark.slow
def test_a_page_at_an_address_that_ends_like_a_files_is_a_page(tmp_path: Path) -> None:
    """A viewer of a table is a view, and a login in place of a paper is no paper."""
    profile = complete(Profile())
    with (
        serve(handle) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        urls = [f"{base}/shown/table.csv", f"{base}/paper.pdf"]
        table, paper = Fetcher(recorder, writer, profile).fetch(urls)
    assert (table.ok, table.views, table.documents) == (True, [urls[0]], [])
    assert (paper.ok, paper.views, paper.documents) == (False, [], [])
    assert [finding.kind for finding in paper.findings] == ["login"]
