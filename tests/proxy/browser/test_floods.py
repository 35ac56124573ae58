"""What a page does in a loop while it is recorded is kept within bounds, and that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.proxy.browser import bounded_evaluate, driver, settle
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

WORDS = "<title>Loops</title><h1>A page that does the same again and again</h1><p>It says so, lest it be taken for empty.</p>"
LOOPS = {
    "/requests": "for (let n = 0; n < 60; n++) fetch('/data?' + n);",
    "/downloads": "const a = Object.assign(document.createElement('a'), {href: 'data:text/plain,x', download: 'x.txt'});"
    " for (let n = 0; n < 20; n++) setTimeout(() => a.click(), n * 20);",
    "/dialogs": "addEventListener('load', () => { for (let n = 0; n < 30; n++) alert(n); });",
    "/endless": "addEventListener('load', () => { for (;;) alert('again'); });",
}


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = LOOPS.get(path)
    return 200, {"Content-Type": "text/html"}, f"{WORDS}<script>{page}</script>".encode() if page else b"x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("/requests", "sends too many requests: the first "),
        ("/downloads", "starts too many downloads: the first "),
        ("/dialogs", "more dialogs: left out"),
        ("/endless", "a script of it holds it up"),
    ],
)
def test_a_page_that_loops_is_recorded_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, told: str
) -> None:
    monkeypatch.setattr(settle, "MOST_REQUESTS", 40)
    monkeypatch.setattr(driver, "MOST_DOWNLOADS", 5)
    monkeypatch.setattr(driver, "MOST_DIALOGS", 10)
    monkeypatch.setattr(bounded_evaluate, "SECONDS", 1 if page == "/endless" else 20)
    patience = SettleTimeouts(real=2) if page == "/endless" else SettleTimeouts()
    with serve(answer) as site, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        [result] = Fetcher(recorder, writer, patience=patience).fetch([site + page])
    said = [*result.notes, str(result.error)]
    with Snapshot.open(tmp_path / "s") as snapshot:
        said += [(snapshot.resource("pageinfo", view.address) or b"").decode() for view in snapshot.views()]
    assert any(told in one for one in said)
