"""Coverage, needs and affected tasks over real snapshots: what is there, what is not, and what only looks like it."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.benchmarks.browsecomp.prompts import Failure, PageReader, Prompt, build
from stillweb.harness.curation.affected import affected_by_run, affected_tasks
from stillweb.harness.curation.coverage import coverage, searches_of, urls_of
from stillweb.harness.curation.needs import tasks_as_asked
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.task import Task
from stillweb.harness.tools import Toolset
from stillweb.harness.tools.toolset import query_verdict
from stillweb.harness.trace import check_event, read_trace, replace_events
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.diff import CaptureChange, Diff, TextChange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange
from tests.support.runs import make_run

BODY = "<html><head><title>Lakes</title></head><body><article><h1>Lakes</h1><p>{}</p></article></body></html>"
LONG = "Alpha is a deep lake in the north, and people have measured it many times over the years. " * 5

LOGIN = '<form action="/login">Name <input name="n"> Password <input type="password" name="p"></form>'


def page(url: str, text: str = LONG, status: int = 200, location: str | None = None) -> Exchange:
    body = BODY.format(text).encode()
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body)))]
    if location:
        headers.append(("Location", location))
    return Exchange(Request("GET", url), status, "OK", tuple(headers), body, datetime(2025, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    folder = tmp_path_factory.mktemp("snapshot") / "site"
    with Writer.open(folder) as writer:
        for exchange in (
            page("https://a.test/"),
            page("https://a.test/beta", LONG.replace("Alpha", "Beta")),
            page("https://a.test/old", status=301, location="/beta"),
            page("https://a.test/astray", status=302, location="https://gone.test/"),
            page("https://a.test/loop", status=302, location="/loop"),
            page("https://a.test/404", "Nothing here, whatever you may have been told about it.", 404),
            page("https://a.test/members", status=302, location="/login?next=/members"),
            page("https://a.test/login?next=/members", LOGIN),
            page("https://a.test/soft", "Page not found."),
            page("https://a.test/short", "Please enable JavaScript."),
        ):
            writer.exchange(exchange)
    sealed = folder.with_suffix(".wacz")
    seal(folder, sealed)
    with Snapshot.open(sealed) as opened:
        yield opened


def task(*urls: str, task_id: str = "t", start: str | None = None) -> Task:
    return Task(task_id, "?", "x", "exact", {"urls": [[url, "required"] for url in urls]}, start_url=start)


def test_urls_of_a_task_in_all_the_shapes_sets_have() -> None:
    meta = {
        "urls": [["https://a.test/", "required"], "https://b.test/"],
        "all_involved_urls": {"x": ["https://c.test/", "not a url"], "y": "https://a.test/"},
        "searches": ["deep lakes", 1],
    }
    found = Task("t", "?", None, "page", meta, start_url="https://s.test/")
    assert urls_of(found) == ["https://s.test/", "https://a.test/", "https://b.test/", "https://c.test/"]
    assert searches_of(found) == ["deep lakes"]
    assert urls_of(Task("t", "?")) == []


def test_what_is_there_and_what_is_missing(snapshot: Snapshot) -> None:
    tasks = [
        task("https://a.test/", "https://a.test/beta", task_id="whole"),
        task("https://a.test", "https://a.test/missing", task_id="part"),
        Task("silent", "?"),
    ]
    report = coverage(tasks, snapshot)
    assert report.whole_tasks == ("whole",)
    assert report.unknown_tasks == ("silent",)
    assert [need.what for need in report.missing] == ["https://a.test/missing"]
    assert report.share == 0.75
    assert report.snapshot == snapshot.id


@pytest.mark.parametrize(
    ("url", "answered", "note"),
    [
        ("https://a.test/old", True, None),
        ("https://a.test/astray", False, "redirects to https://gone.test/, which is not recorded"),
        ("https://a.test/loop", False, "redirects without end"),
        ("https://a.test/404", True, "recorded with status 404"),
        ("https://a.test/members", True, "leads to https://a.test/login?next=/members, looks like a login"),
        (
            "https://a.test/login?next=/members",
            True,
            "looks like a login: is a form that asks for a password",
        ),
        ("https://a.test/soft", True, "looks like a missing page"),
        ("https://a.test/#tab=2", True, "no view of this fragment"),
        ("https://a.test/#view=0123456789abcdef", False, "no view of the snapshot has this address"),
    ],
)
def test_what_only_looks_like_an_answer(
    snapshot: Snapshot, url: str, answered: bool, note: str | None
) -> None:
    (need,) = coverage([task(url)], snapshot).needs
    assert need.answered is answered
    assert any(note in text for text in need.notes) if note else not need.notes


def test_searches_are_asked_of_whoever_can_answer(snapshot: Snapshot) -> None:
    asked = Task("t", "?", None, "page", {"searches": ["lakes", "other"]})
    report = coverage([asked], snapshot, search=lambda query: ("exact" if query == "lakes" else "miss", ()))
    assert [(need.kind, need.what) for need in report.missing] == [("search", "other")]
    assert coverage([asked], snapshot).missing[0].notes == ("searches were not looked up",)


def test_what_an_answer_says_is_told_of_that_answer_not_of_another(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        whole = page("https://a.test/")
        for sent, body in ((("X-Kind", "app"),), whole.body), ((), b"<html><body></body></html>"):
            request = Request("GET", "https://a.test/", sent)
            fields = (("Content-Type", "text/html"), ("Content-Length", str(len(body))), ("Vary", "X-Kind"))
            writer.exchange(replace(whole, request=request, headers=fields, body=body))
    seal(tmp_path / "site", tmp_path / "site.wacz")
    with Snapshot.open(tmp_path / "site.wacz") as snapshot:
        assert LONG[:40] in snapshot.text("https://a.test/").markdown
        (need,) = coverage([task("https://a.test/")], snapshot).doubtful
        fetched = asyncio.run(Toolset(snapshot).session("a").call("fetch", {"url": "https://a.test/"}))
    assert "failed to be simplified" in fetched.text
    assert "its text is empty" in need.notes


def test_an_answer_that_depends_on_what_came_before_is_told_with_its_confidence(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for n, (method, path) in enumerate((("POST", "/cart"), ("GET", "/me"))):
            at = {"begin": 2 * n + 1, "end": 2 * n + 2}
            writer.exchange(exchange(f"https://a.test{path}", b"<p>state %d" % n, method=method, **at))
    with Snapshot.open(tmp_path / "site") as snapshot:
        (need,) = coverage([task("https://a.test/me")], snapshot).doubtful
    assert need.notes[0].startswith("presumed (0.")
    assert "the recording does not show whether POST /cart matters" in need.notes[0]


def test_searches_are_looked_up_as_they_are_asked(tmp_path: Path) -> None:
    """A refusal that was recorded is no sure answer, and a search of a run has its operators."""
    recorded = [
        (403, {"q": "owls"}),
        (200, {"q": "kites site:b.test", "gl": "us", "hl": "en", "site": "b.test"}),
        (200, {"q": "gulls"}),
    ]
    with Writer.open(tmp_path / "site") as writer:
        for status, body in recorded:
            sent = json.dumps(body, separators=(",", ":")).encode()
            fields = (("Content-Type", "application/json"), ("Content-Length", "2"))
            request = Request("POST", "https://google.serper.dev/search", fields[:1], sent)
            writer.exchange(Exchange(request, status, "OK", fields, b"{}", datetime(2025, 1, 1, tzinfo=UTC)))
    asked = ["owls", {"q": "kites", "site": "b.test"}, {"q": "kites"}, "gulls", {"q": "gulls"}]
    with Snapshot.open(tmp_path / "site") as snapshot:
        search = query_verdict(Toolset(snapshot, ["serper"]))
        report = coverage([Task("t", "?", meta={"searches": asked})], snapshot, search=search)
    told = {need.what: (need.answered, need.notes) for need in report.needs}
    assert [need.what for need in report.missing] == ["kites", "gulls"]  # by the wrapper, which posts more
    assert told["owls"] == (True, ("recorded with status 403",))
    assert told['{"q": "kites", "site": "b.test"}'][0]
    assert [need.answered for need in report.needs] == [True, True, False, True, False]


def test_prompts_from_a_sealed_snapshot(snapshot: Snapshot) -> None:
    rows = [
        task("https://a.test/", "https://a.test/old", task_id="good"),
        task("https://a.test/", "https://a.test/404", task_id="error page"),
        task("https://a.test/loop", task_id="loop"),
        task("https://a.test/astray", task_id="astray"),
        task("https://a.test/nowhere", task_id="nowhere"),
        task("https://a.test/short", task_id="short"),
    ]
    results = {result.task_id: result for result in build(rows, snapshot, "8k")}
    good = results["good"]
    assert isinstance(good, Prompt)
    assert "Alpha is a deep lake" in good.text
    assert "Beta is a deep lake" in good.text
    assert good.certificate["snapshot"] == snapshot.id
    reasons = {name: result.reason for name, result in results.items() if isinstance(result, Failure)}
    assert "status 404" in reasons["error page"]
    assert "without end" in reasons["loop"]
    assert "gone.test" in reasons["astray"]
    assert "not in the snapshot" in reasons["nowhere"]
    short = results["short"]
    notes = short.pages[0].notes
    assert any("short" in note for note in notes) or "empty" in str(notes)


@pytest.mark.slow
def test_a_million_tokens_from_a_sealed_snapshot(tmp_path: Path) -> None:
    words = [f"{a}{b}" for a in ("lake", "deep", "north", "water", "stone", "cold") for b in "abcdefghij"]
    urls = [f"https://p.test/{n}" for n in range(120)]
    with Writer.open(tmp_path / "big") as writer:
        for n, url in enumerate(urls):
            text = "</p><p>".join(
                " ".join(words[(n + i * j) % 60] for j in range(60)) + "." for i in range(70)
            )
            writer.exchange(page(url, text))
    seal(tmp_path / "big", tmp_path / "big.wacz")
    with Snapshot.open(tmp_path / "big.wacz") as opened:
        (prompt,) = build([task(*urls)], PageReader(opened), "2M")
    assert isinstance(prompt, Prompt)
    assert prompt.tokens > 1_000_000, prompt.tokens


LIST = "https://shelf.example/list?year=2012&page=1"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = make_run(tmp_path, ["right"])
    settings, stands_on = made.manifest()
    made.write_manifest(settings, {**stands_on, "snapshot": "one"})
    return made


def calls(files: RunFiles, **members: Any) -> None:
    """Gives the run's tool calls these members."""
    trace = read_trace(files.trace_path("right", 1))
    events = [{**e, **members} if e["event"] == "tool_call" else e for e in trace.events]
    replace_events(trace.path, [trace.header, *events])


def reasons(files: RunFiles, found: Diff) -> list[str]:
    return [reason for one in affected_by_run(files.path, found) for reason in one.reasons]


def test_a_run_on_another_snapshot_is_not_called_untouched(files: RunFiles) -> None:
    assert reasons(files, Diff("one", "two")) == []
    with pytest.raises(UsageError, match="this run was made on the snapshot one, not on three"):
        affected_by_run(files.path, Diff("three", "one"))


@pytest.mark.parametrize(
    "url",
    [
        "https://shelf.example/list?year=2012&page=1",
        "https://shelf.example/list?page=1&year=2012#top",
        "HTTPS://Shelf.example:443/list?year=2012&page=1",
    ],
)
def test_a_page_is_touched_however_a_task_writes_its_url(url: str) -> None:
    found = Diff("one", "two", captures=[CaptureChange("changed", "GET", LIST, "", (), ())])
    (touched,) = affected_tasks([Task("t", "?", start_url=url)], found, [])
    assert touched.reasons == (f"changed: GET {LIST}",)
    assert affected_tasks([Task("t", "?", start_url="https://shelf.example/list")], found, []) == []


def test_a_text_that_an_extractor_changed_touches_what_was_fetched(files: RunFiles) -> None:
    calls(files, verdict="exact", address=LIST)
    found = Diff("one", "two", texts=[TextChange("changed", LIST, "extractor")])
    assert reasons(files, found) == [f"text changed: {LIST}"]
    assert (
        reasons(files, Diff("one", "two", texts=[TextChange("changed", "https://b.test/", "source")])) == []
    )


def test_a_search_over_the_texts_is_touched_by_any_of_them(files: RunFiles) -> None:
    calls(files, verdict="synthetic", address=None)
    found = Diff("one", "two", texts=[TextChange("added", "https://b.test/")])
    assert reasons(files, found) == ["a search over the frozen texts, of which some changed"]
    assert reasons(files, Diff("one", "two")) == []


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "event": "tool_call",
        "id": "c1",
        "tool": tool,
        "contract": None,
        "arguments": arguments,
        "verdict": None,
        "captures": [],
        "output": {"digest": "", "text": ""},
        "error": False,
    }


def test_a_run_asked_for_what_its_tools_made_of_it(tmp_path: Path) -> None:
    """A search has its operators, and a browser completes an address."""
    made = make_run(tmp_path, ["right"])
    trace = read_trace(made.trace_path("right", 1))
    calls = [
        call("google_search", q="kites", site="b.test"),
        call("google_search", q="kites"),
        call("google_search", q="kites", gl="us", hl="en"),
        call("google_search", site="b.test", q="kites"),
        call("browser_navigate", url="c.test/page"),
        call("browser_navigate", url="about:blank"),
        call("fetch", url="HTTPS://d.test/"),
        call("fetch", url="e.test"),
    ]
    events = [{**event, "n": n} for n, event in enumerate([*calls, *trace.events[-2:]], 1)]
    assert not any(map(check_event, events))
    replace_events(trace.path, [trace.header, *events])
    (asked,) = tasks_as_asked(trace.path)
    assert asked.meta["urls"] == ["https://c.test/page", "HTTPS://d.test/"]
    assert asked.meta["searches"] == [{"q": "kites", "site": "b.test"}, {"q": "kites"}]
