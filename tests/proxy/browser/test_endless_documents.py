"""No server keeps a recording waiting by an answer that never ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stillweb.harness.curation.missing import record_misses
from stillweb.harness.tools.recording import LiveStore
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.net import bounded_clients
from stillweb.proxy.record import addon
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin

PAGES = {
    "/linked": "<a href=/paper.pdf>paper</a>",
    "/saved": "<a href=/file download id=a>file</a><script>a.click()</script>",
}
NEVER = "the answer did not end within 1 s"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.05)


def answer(asked: Asked) -> Answer:
    if asked.path in PAGES:
        page = f"<!DOCTYPE html><title>T</title><link rel=icon href=data:,><p>text</p>{PAGES[asked.path]}"
        return Answer(headers=[("Content-Type", "text/html")], body=page.encode())
    where = [("Location", "/paper.pdf")] if asked.path == "/moved.pdf" else []
    return Answer(
        302 if where else 200, headers=[("Content-Type", "application/pdf"), *where], body=endless()
    )


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_clients, "LONGEST", 1.0)
    monkeypatch.setattr(addon, "OUTLIVE_SECONDS", 0.2)
    quiet = Recorder.wait_quiet

    def soon(self: Recorder, session: str, seconds: float, timeout: float = 1.0, hanging: int = 0) -> bool:
        return quiet(self, session, seconds, min(timeout, 1.0), hanging)

    monkeypatch.setattr(Recorder, "wait_quiet", soon)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Writer.open(tmp_path / "s") as writer, Recorder(writer) as running:
        yield running


@pytest.mark.slow
def test_an_endless_document_is_left_and_told(recorder: Recorder, tmp_path: Path) -> None:
    writer = recorder.writer
    assert isinstance(writer, Writer)
    with Origin(answer) as origin:
        urls = [f"{origin.url}{path}" for path in ("/paper.pdf", "/moved.pdf", *PAGES)]
        named, moved, linked, saved = Fetcher(recorder, writer).fetch(urls, pdfs=True)
    assert (named.ok, named.error) == (False, f"{named.url}: {NEVER}")
    assert (moved.ok, moved.error) == (False, f"{moved.url}: {NEVER}")
    assert (linked.ok, linked.notes) == (True, [f"{origin.url}/paper.pdf: {NEVER}"])
    assert (saved.ok, saved.notes[:1]) == (True, [f"{origin.url}/file: {NEVER}"])
    recorder.close()
    writer.close()
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [view.url for view in snapshot.views()] == [linked.url, saved.url]


def test_a_missed_request_with_an_endless_answer_is_told(recorder: Recorder) -> None:
    said: list[str] = []
    with Origin(answer) as origin:
        url = f"{origin.url}/feed"
        entry = {"session": "a", "method": "GET", "url": url, "seq": 0, "verdict": "miss", "status": 504}
        assert record_misses(recorder, [entry], said.append) == (0, 1)
    assert said == [f"not recorded: GET {url}: {NEVER}"]


def test_a_model_that_asks_for_an_endless_answer_gets_an_error(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Origin(answer) as origin, closing(LiveStore(recorder).session("a")) as visit:
        found = visit.look(Request("GET", f"{origin.url}/feed"))
        assert found.error == f"ReadTimeout('{NEVER}')"
    monkeypatch.setattr(bounded_clients, "MOST", 3)
    with Origin(answer) as origin, closing(LiveStore(recorder).session("b")) as visit:
        found = visit.look(Request("GET", f"{origin.url}/feed"))
        assert found.error == "ReadError('the answer is longer than 3 bytes')"
