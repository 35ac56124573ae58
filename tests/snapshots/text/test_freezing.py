"""Freezing a whole snapshot: every page, PDF and view once, in one order, on all cores."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stillweb.snapshots._os import processes
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.operations.upgrading import changes
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text import freezing
from stillweb.snapshots.text.freezing import text_address
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import freeze_texts
from tests.snapshots.text.test_text import ARTICLE, make_pdf
from tests.support.waiting import STARTS


def store(
    writer: Writer,
    url: str,
    body: bytes | str,
    media: str = "text/html",
    *,
    method: str = "GET",
    status: int = 200,
    place: str = "",
) -> None:
    data = body.encode() if isinstance(body, str) else body
    number = writer.event("s")
    fields = (("Content-Type", media), *((("Content-Range", place),) if place else ()))
    writer.exchange(
        Exchange(
            Request(method, url, (), b"a=1" if method == "POST" else b""), status, "OK", fields, data,
            datetime(2025, 1, 1, 0, 0, min(number, 59), tzinfo=UTC), "s", number, writer.event("s"),
        )
    )  # fmt: skip


def fill(path: Path, pages: int) -> None:
    with Writer.open(path) as writer:
        for n in range(pages):
            store(writer, f"https://a.test/{n:03}", ARTICLE.replace("Penguins", f"Penguins {n}"))
        store(writer, "https://a.test/paper", make_pdf("One", "Two"), "application/pdf")
        store(writer, "https://a.test/gone", ARTICLE, status=404)
        store(writer, "https://a.test/data", "{}", "application/json")
        store(writer, "https://a.test/000", ARTICLE.replace("Penguins", "Changed"))
        store(writer, "https://a.test/form", ARTICLE.replace("Penguins", "Posted"), method="POST")
        steps = ({"click": {"text": "Next"}},)
        address = view_address("https://a.test/000", steps)
        view = View(
            address, "https://a.test/000", "https://a.test/000", "t", steps, timestamp="20250101000000"
        )
        writer.view(view, {"dom": ARTICLE.replace("Penguins", "Viewed").encode()})


def texts(path: Path) -> list[FrozenText]:
    with Snapshot.open(path) as snapshot:
        return list(snapshot.texts())


def test_every_page_pdf_and_view_is_frozen_once(tmp_path: Path) -> None:
    fill(tmp_path / "s", 3)
    with Writer.open(tmp_path / "s") as writer:
        assert freeze_texts(writer) == 7
        assert freeze_texts(writer) == 0  # what is frozen stays
    found = texts(tmp_path / "s")
    assert [t.address.partition("#")[2][:5] for t in found] == ["", "text=", "view=", "", "", "text=", ""]
    by_word = {w: t.address for t in found for w in ("Changed", "Posted", "Viewed") if w in t.markdown}
    assert by_word["Changed"].startswith("https://a.test/000#text=")
    assert by_word["Posted"].startswith("https://a.test/form#text=")
    assert by_word["Viewed"].startswith("https://a.test/000#view=")
    paper = next(t for t in found if t.address.endswith("paper"))
    assert paper.pages == ("One", "Two")


def test_the_same_answer_to_another_method_has_one_text(tmp_path: Path) -> None:
    """GET and POST of a URL have different keys in the index, and one address for the same bytes."""
    second = ARTICLE.replace("Penguins", "Second")
    with Writer.open(tmp_path / "s") as writer:
        for body, method in ((ARTICLE, "GET"), (second, "GET"), (second, "POST")):
            store(writer, "https://a.test/", body, method=method)
    report = seal(tmp_path / "s")
    assert (report.texts, report.frozen) == (2, 2)
    first, other = texts(tmp_path / "s.wacz")
    assert (first.address, "Penguins" in first.markdown) == ("https://a.test/", True)
    assert (other.address.partition("#")[2][:5], "Second" in other.markdown) == ("text=", True)


def test_an_earlier_answer_that_comes_after_sealing_has_a_text_of_its_own(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        store(writer, "https://a.test/", ARTICLE)
        freeze_texts(writer)
        earlier = ARTICLE.replace("Penguins", "Earlier").encode()
        fields, begun = (("Content-Type", "text/html"),), datetime(2020, 1, 1, tzinfo=UTC)
        writer.exchange(
            Exchange(Request("GET", "https://a.test/"), 200, "OK", fields, earlier, begun, "old", 1, 2)
        )
        assert freeze_texts(writer) == 1
        assert freeze_texts(writer) == 0
    first, second = sorted(texts(tmp_path / "s"), key=lambda text: text.address)
    assert ("Penguins" in first.markdown, "Earlier" in second.markdown) == (True, True)
    with Snapshot.open(tmp_path / "s") as snapshot:
        digests = {capture.timestamp[:4]: text_address(capture) for capture in snapshot.captures()}
        assert second.address == digests["2020"]
        assert list(changes(snapshot, workers=1)) == []


def test_a_part_has_a_text_if_it_is_all_of_the_file(tmp_path: Path) -> None:
    """As browsers ask for PDFs."""
    paper = make_pdf("One")
    with Writer.open(tmp_path / "s") as writer:
        place = f"bytes 0-{len(paper) - 1}/{len(paper)}"
        store(writer, "https://a.test/paper", paper, "application/pdf", status=206, place=place)
        place = f"bytes 0-{len(paper) - 1}/{len(paper) + 1}"
        store(writer, "https://a.test/start", paper, "application/pdf", status=206, place=place)
        freeze_texts(writer)
    assert [(t.address, t.pages) for t in texts(tmp_path / "s")] == [("https://a.test/paper", ("One",))]


def test_texts_are_dated_as_their_sources_whenever_they_are_frozen(tmp_path: Path) -> None:
    fill(tmp_path / "s", 2)
    with Writer.open(tmp_path / "s") as writer:
        freeze_texts(writer)
    with Snapshot.open(tmp_path / "s") as snapshot:
        records = [snapshot.record_of("conversion", text.address) for text in snapshot.texts()]
        dates = {record.fields["warc-date"] for record in records if record}
        view = snapshot.record_of("conversion", freezing.view_text_address(snapshot.views()[0]))
    assert view is not None
    assert view.fields["warc-date"] == "2025-01-01T00:00:00Z"
    assert all(date.startswith("2025-01-01T") for date in dates), dates


def test_worker_processes_give_the_same_texts_in_the_same_order(tmp_path: Path) -> None:
    fill(tmp_path / "s", freezing.IN_PROCESS + 6)
    with Snapshot.open(tmp_path / "s") as snapshot:
        todo = list(freezing.jobs(snapshot))
        alone = list(freezing.extract_all(snapshot, todo, len(todo), workers=1))
        assert [job for job, _ in alone] == todo
        assert list(freezing.extract_all(snapshot, todo, len(todo), workers=2)) == alone


def die(sent: list[freezing.Sent]) -> list[FrozenText | None]:
    return [die_one(one) for one in sent]


def die_one(sent: freezing.Sent) -> FrozenText | None:
    if sent[0].endswith("/005"):
        os._exit(9)
    return FrozenText(sent[0], "fine")


@pytest.mark.slow
def test_a_page_that_kills_the_extractor_costs_only_its_own_text_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", freezing.IN_PROCESS + 6)
    monkeypatch.setattr(freezing, "work_all", die)
    monkeypatch.setattr(freezing, "work", die_one)
    report = seal(tmp_path / "s", workers=2)
    assert report.missing == ["https://a.test/005: the extractor crashed on this page; it has no text"]
    assert f"no text: {report.missing[0]}" in report.text()
    found = texts(tmp_path / "s.wacz")
    assert [t.address for t in found if t.markdown != "fine"] == ["https://a.test/005"]
    assert len(found) == report.texts + 1 > freezing.IN_PROCESS


def test_a_page_that_the_extractor_fails_on_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> FrozenText:
        raise RecursionError("too deep")

    fill(tmp_path / "s", 2)
    monkeypatch.setattr(freezing, "extract_html", fail)  # of views
    report = seal(tmp_path / "s")
    (missing,) = report.missing
    assert missing.startswith("https://a.test/000#view=")
    assert "RecursionError: too deep" in missing
    assert report.texts == 5


def test_workers_that_do_not_start_end_the_sealing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s", freezing.IN_PROCESS + 6)
    monkeypatch.setattr(processes, "_START", "raise SystemExit(5)")
    with pytest.raises(MissingCapability, match="ended while it started"):
        seal(tmp_path / "s", workers=2)
    assert not (tmp_path / "s.wacz").exists()


SCRIPT = """
import sys
from stillweb.snapshots.wacz import seal

print("the script runs", flush=True)
report = seal(sys.argv[1], workers=2)
print(report.texts, report.missing)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Neither the script nor what lies beside it gets into the workers."""
    fill(tmp_path / "s", freezing.IN_PROCESS + 6)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "lxml.py").write_text("raise SystemExit('the file in the current directory was imported')")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "script.py").rename(tmp_path / "elsewhere" / "script.py")
    done = subprocess.run(
        [sys.executable, tmp_path / "elsewhere" / "script.py", tmp_path / "s"],
        capture_output=True, text=True, timeout=STARTS, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(freezing.__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["the script runs", f"{freezing.IN_PROCESS + 10} []"],
    ), done.stderr
