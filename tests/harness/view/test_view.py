"""`stillweb view` as a person meets it: the command as a process, its pages in Chromium."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
import yaml
from lxml import html

import stillweb as sw
from stillweb.harness.compare.compare import Outcome, first_divergence
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.results.summary import summarise
from stillweb.harness.review.reviews import COMPOSITION
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.trace import Trace, read_trace
from stillweb.harness.view.export import check_page, export_file, export_views, write_report
from stillweb.harness.view.library import number
from stillweb.harness.view.run_table import Row, group_of, pass_at, row_of, sums_of
from stillweb.harness.view.server import ViewServer
from stillweb.harness.view.site import Site
from stillweb.proxy.check.check import CheckReport, ViewCheck
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.harness.view.looked_at import (
    BABBLE,
    DOM,
    EVIL,
    OPTIONS,
    PAGE,
    START,
    WRONG,
    make_run,
    make_snapshot,
    make_world,
    png,
    viewed,
)
from tests.support.command_line import stillweb
from tests.support.pages import chromium
from tests.support.runs import bird_task
from tests.support.waiting import STARTS, until

AXE = Path(__file__).parents[2] / "support" / "axe" / "axe.min.js"
WORDS = {"cause": "Took the wrong row.", "evidence": "Step 1 has both.", "why_not": "The page was right."}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def url(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with viewed(world / "run1", world / "run2", cache=tmp_path_factory.mktemp("cache")) as address:
        yield address


def get(
    url: str, headers: dict[str, str] | None = None, form: dict[str, Any] | None = None
) -> tuple[int, str, Any]:
    """Status, text and header fields of an answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    body = urlencode(form) if form is not None else None
    connection.request(
        "POST" if form is not None else "GET",
        f"{parts.path or '/'}?{parts.query}",
        body,
        {**({"Content-Type": "application/x-www-form-urlencoded"} if body else {}), **(headers or {})},
    )
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, text, answer.headers


def settled(url: str) -> str:
    """The text of a page when nothing on it is still being worked out."""
    assert until(lambda: "load delay" not in get(url)[1])
    return get(url)[1]


def rows(text: str) -> list[str]:
    """The names of the rows that a table shows."""
    return re.findall(r'<tr data-row="([^"]*)"', text)


@pytest.mark.slow
def test_three_clicks_lead_from_a_red_cell_to_the_page_that_misled(url: str) -> None:
    with chromium() as page:
        page.goto(f"{url}/run/run1")
        page.locator("tr[data-row=wrong] a.cell.k-none").first.click()
        page.locator("td.cell-wrong", has_text="3800").get_by_role("link", name="from step 1").click()
        assert page.url.endswith("/attempt/wrong.1#step-1")
        assert page.locator("#step-1 mark").all_inner_texts().count("3800") == 1
        page.locator("#step-1").get_by_role("link", name="Page it saw").click()
        page.wait_for_load_state()
        frame = page.frame_locator("iframe.page")
        assert "Bird 8 weighed 3800 g" in frame.locator("p").inner_text()
        assert page.locator("img.shot").evaluate("one => one.naturalWidth") == 64


@pytest.mark.slow
def test_a_frozen_page_runs_no_script_leads_nowhere_and_asks_nobody(url: str) -> None:
    with chromium() as page:
        page.goto(f"{url}/run/run1/attempt/wrong.1")
        page.locator("#step-1").get_by_role("link", name="Page it saw").click()
        page.wait_for_load_state("networkidle")
        frame = next(one for one in page.frames if "/view/" in one.url and one != page.main_frame)
        assert urlsplit(frame.url).netloc != urlsplit(url).netloc
        assert frame.locator("h1").evaluate("one => getComputedStyle(one).color") == "rgb(1, 2, 3)"
        assert frame.locator("img[alt=bird]").evaluate("one => one.naturalWidth") == 8
        assert page.evaluate("document.title") == f"Birds {EVIL} – Stillweb"
        frame.locator("#send").click()
        frame.locator("#away").click(force=True)
        page.wait_for_timeout(300)
        assert "owned" not in frame.locator("body").inner_text()
        assert page.url.startswith(url)
        assert {urlsplit(one).hostname for one in page.requested if not one.startswith("data:")} == {
            "127.0.0.1"
        }


def test_recorded_markup_is_text(url: str) -> None:
    for path in ("/snapshot/birds", "/snapshot/birds/views", "/snapshot/birds/map"):
        status, text, _ = get(url + path)
        assert status == 200
        assert EVIL not in text
        assert "&lt;script&gt;document.title" in text


def test_pages_have_a_strict_policy_and_the_frames_another_origin(url: str) -> None:
    _, text, fields = get(f"{url}/snapshot/birds")
    policy = fields["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    elements = [one for one in html.document_fromstring(text).iter() if isinstance(one.tag, str)]
    assert all(one.get("src") for one in elements if one.tag == "script")
    assert not [name for one in elements for name in one.attrib if name == "style" or name.startswith("on")]
    view = re.search(r"/snapshot/birds/view/\w+", text)
    assert view
    frame = re.search(r'<iframe[^>]*sandbox="" src="([^"]+)"', get(url + view[0])[1])
    assert frame
    status, _, fields = get(frame[1])
    assert status == 200
    assert fields["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert f"frame-ancestors {url}" in fields["Content-Security-Policy"]
    token = urlsplit(frame[1]).path.split("/")[1]
    assert get(frame[1].replace(token, "guess"))[0] == 404
    assert get(frame[1], {"Host": "evil.test"})[0] == 403
    assert get(frame[1], {"Origin": "https://evil.test"})[0] == 403


@pytest.mark.slow
def test_foreign_pages_are_refused_and_forms_without_the_token_too(url: str, world: Path) -> None:
    for path in PAGES:
        address = addressed(url, path)
        for field in ({"Host": "evil.test"}, {"Host": f"127.0.0.1.evil.test:{urlsplit(url).port}"}, {"Origin": "https://evil.test"}, {"Origin": "null"}):  # fmt: skip
            assert get(address, field)[0] == 403, (path, field)
        assert "frame-ancestors 'none'" in get(address)[2]["Content-Security-Policy"], path
        for form in ({}, {"token": ""}, {"reviewer": "eve", "token": "guess"}):
            status, text, _ = get(address, form=form)
            assert (status, "not from a page of this server" in text) == (403, True), path
    assert read_trace(world / "run1" / "traces" / "wrong.1.jsonl").of("review") == []


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["right.1", "right.2", "wrong.1", "wrong.2", "babble.1", "babble.2"]),
        ("show=wrong", ["wrong.1", "wrong.2", "babble.1", "babble.2"]),
        ("show=unparsable", ["babble.1", "babble.2"]),
        ("show=missed", ["wrong.1", "wrong.2", "babble.1", "babble.2"]),
        ("show=right&q=RIGHT", ["right.1", "right.2"]),
        ("q=nothing", []),
        ("sort=score&metric=item_f1", ["babble.1", "babble.2", "wrong.1", "wrong.2", "right.1", "right.2"]),
        ("sort=-item_f1&show=wrong", ["wrong.1", "wrong.2", "babble.1", "babble.2"]),
    ],
)
def test_the_table_is_filtered_sorted_and_searched(url: str, query: str, shown: list[str]) -> None:
    assert rows(get(f"{url}/run/run1?by=attempt&{query}")[1]) == shown


def test_tasks_are_rolled_up_over_all_their_attempts(url: str) -> None:
    text = get(f"{url}/run/run2?k=2")[1]
    assert rows(text) == ["right", "wrong", "babble"]
    assert "pass@2" in text


def test_spread_standard_error_and_pass_at_k() -> None:
    def row(n: int, value: float | None, fault: str = "", own: str = "") -> Row:
        metrics = {"exact": value}
        scored = Outcome("t", "t", n, metrics, "scored", fault=fault, own=own)
        return Row(f"t.{n}", "t", n, "scored", metrics=metrics, metric="exact", score=value, right=value == 1, scored=scored, presumed=1, doubt=0.25)  # fmt: skip

    four = [row(n, value) for n, value in enumerate((1, 0, 1, None), 1)]
    group = group_of("t", four, "", 2)
    assert group.mean == 0.5
    assert group.spread == pytest.approx(0.57735, abs=1e-5)
    assert group.error == pytest.approx(0.288675, abs=1e-5)
    assert group.passed == pytest.approx(1 - 1 / 6)
    assert (group.presumed, group.doubt) == (4, 1.0)
    assert pass_at(1, 1, 2) is None
    assert group_of("t", four, "item_f1", 1).mean is None  # the task's scorer has no such metric
    five = group_of("t", [*four, row(5, None, fault="judge")], "exact", 2)  # says nothing about its agent
    assert (five.mean, five.spread, five.passed) == (group.mean, group.spread, group.passed)
    sums = sums_of(five.rows, "")
    assert (sums.mean, sums.of, sums.done) == (0.5, 4, 5)
    points = row(6, 7.0, own="points:score")
    assert sums_of([points], "").mean == 7.0
    assert sums_of([*four, points], "").mean is None  # 7 points and a share of 1 have no mean
    assert sums_of([*four, points], "exact").mean is None


@pytest.mark.slow
def test_a_review_is_made_in_place_and_a_second_reviewer_disagrees(tmp_path: Path) -> None:
    files = make_run(tmp_path / "run", make_snapshot(tmp_path / "birds"), ["right", "wrong"], wrong=WRONG)
    with viewed(files.path, cache=tmp_path) as url, chromium() as page:
        for reviewer, name in (("ada", COMPOSITION), ("bob", "in-page misreading")):
            page.goto(f"{url}/run/run/attempt/wrong.1?by=attempt&show=wrong")
            form = page.locator("form.review")
            form.locator("[name=reviewer]").fill(reviewer)
            form.locator("[name=class]").select_option(name)
            form.locator("[name=decisive_event]").fill("1")
            form.locator("[name=nearest_class]").select_option("drift")
            for field, words in WORDS.items():
                form.locator(f"[name={field}]").fill(words)
            if name == COMPOSITION:
                assert form.locator(".override").is_visible()
                form.locator("[name=override]").fill("The page was an advert.")
            form.locator("button").click()
            page.wait_for_url("**#review")
        trace = read_trace(files.trace_path("wrong", 1))
        assert [one["reviewer"] for one in trace.of("review")] == ["ada", "bob"]
        assert "The reviewers disagree" in page.locator("main").inner_text()
        text = get(f"{url}/run/run/agreement")[1]
        assert "ada and bob" in text
        for show in (f"class:{COMPOSITION.replace(' ', '+')}", "class:in-page+misreading", "disputed"):
            assert rows(get(f"{url}/run/run?by=attempt&show={show}")[1]) == ["wrong.1"], show
        assert rows(get(f"{url}/run/run?by=attempt&show=class:drift")[1]) == []


def test_a_wrong_review_is_explained_and_keeps_what_was_typed(url: str, world: Path) -> None:
    address = f"{url}/run/run1/attempt/wrong.2"
    token = re.search(r'name="token" value="([^"]+)"', get(address)[1])
    assert token
    form = {"token": token[1], "task": "wrong", "attempt": 2, "reviewer": "ada", "class": "drift", "nearest_class": "drift", "decisive_event": 1, **WORDS}  # fmt: skip
    status, text, _ = get(address, form=form)
    assert status == 422
    assert "must be another than the class chosen" in text
    assert "Took the wrong row." in text


def test_a_damaged_trace_shows_what_is_readable_and_says_what_is_not(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    lines = (run / "traces" / "wrong.1.jsonl").read_text().splitlines()
    (run / "traces" / "wrong.1.jsonl").write_text("\n".join([*lines[:2], '{"event": "tool_', *lines[2:]]))
    (run / "traces" / "right.2.jsonl").rename(run / "traces" / "right.2.jsonl.part")
    (run / "traces" / "babble.2.jsonl").unlink()
    with viewed(run, cache=tmp_path) as url:
        text = get(f"{url}/run/run?by=attempt&show=damaged")[1]
        assert rows(text) == ["wrong.1"]
        assert "not a readable trace" in text
        assert rows(get(f"{url}/run/run?by=attempt&show=open")[1]) == ["right.2", "babble.2"]
        text = get(f"{url}/run/run/attempt/wrong.1")[1]
        assert "wrong.1.jsonl:3: not JSON" in text
        assert 'id="step-1"' in text
        assert "Bird 8 weighed 3800" in get(f"{url}/run/run/attempt/right.2")[1]
        assert "has not begun" in get(f"{url}/run/run/attempt/babble.2")[1]
        assert get(f"{url}/run/run/attempt/..%2f..%2frun")[0] == 404


@pytest.mark.parametrize("line", ["[" * 100_000, "[]", "{}", '{"event": "header"}', "\0", "1e999", '{"n": '])
def test_a_trace_of_any_odd_content_is_a_row_that_says_so(tmp_path: Path, world: Path, line: str) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    (run / "traces" / "wrong.1.jsonl").write_text(line)
    site = Site([run])
    try:
        site.tables["run"].refresh(None)
        text = site.page("/run/run", {"by": "attempt"}).body.decode()
        assert len(rows(text)) == 6
        assert text.count("not a readable trace") == 1
        page = site.page("/run/run/attempt/wrong.1")
        assert (page.status, b"wrong.1.jsonl:1:" in page.body) == (200, True)
    finally:
        site.close()


def test_a_half_written_run_shows_its_traces(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    (run / "tasks.jsonl").write_text("{")
    (run / "run.json").unlink()
    with viewed(run, cache=tmp_path) as url:
        text = get(f"{url}/run/run?by=attempt")[1]
        assert sorted(rows(text)) == ["babble.1", "babble.2", "right.1", "right.2", "wrong.1", "wrong.2"]
        assert "tasks.jsonl" in text


def test_a_snapshot_that_is_damaged_or_changed_is_said_and_the_rest_is_there(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "birds")
    files = make_run(tmp_path / "run", snapshot, ["wrong"], wrong=WRONG)
    (tmp_path / "bad.wacz").write_bytes(b"no archive")
    with Writer.open(snapshot) as writer:
        writer.metadata("urn:note", {"added": 1})
    with viewed(files.path, tmp_path / "bad.wacz", cache=tmp_path) as url:
        text = get(f"{url}/run/run/attempt/wrong.1")[1]
        assert "not the one of the run any more" in text
        assert "Page it saw" not in text
        assert "not readable" in get(url)[1]
        status, text, fields = get(f"{url}/snapshot/bad.wacz")
        assert status == 422
        assert "bad.wacz" in text
        assert fields["HX-Retarget"] == "#main"  # a waiting part of a page gives way to what is wrong


def test_a_view_with_a_damaged_part_shows_the_others(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "birds")
    with sw.open(snapshot) as opened:
        view = opened.views()[0]
    (archive,) = (snapshot / "archive").iterdir()
    data = archive.read_bytes()
    starts = [one.start() for one in re.finditer(b"\x1f\x8b\x08", data)]
    picture = next(at for at in starts if b"urn:view:" in gzip.decompress(data[at : _end(starts, at, data)]))
    archive.write_bytes(data[: picture + 12] + bytes(40) + data[picture + 52 :])
    site = Site([], [snapshot])
    try:
        page = site.page(f"/snapshot/birds/view/{view.id}")
        assert page.status == 200
        assert b"data-00000.warc.gz" in page.body
        assert b"Hidden words" in page.body
        assert b"None was recorded" in page.body
    finally:
        site.close()


def _end(starts: list[int], at: int, data: bytes) -> int:
    return next((one for one in starts if one > at), len(data))


@pytest.mark.parametrize(
    "odd",
    [
        {"state": {"fields": {"a": "b"}}},
        {"state": {"fields": ["a"]}},
        {"steps": ({},)},
        {"steps": ({"click": 3},)},
    ],
)
def test_a_view_of_an_odd_form_is_left_out_and_named(tmp_path: Path, odd: dict[str, Any]) -> None:
    snapshot = make_snapshot(tmp_path / "birds")
    with Writer.open(snapshot) as writer:
        writer.view(View("https://birds.test/odd", PAGE, PAGE, "odd", timestamp="20250301120000", **odd), {})
    site = Site([], [snapshot])
    try:
        assert site.page("/snapshot/birds/map").status == 200
        page = site.page("/snapshot/birds").body.decode()
        assert "a view that can&#39;t be read" in page
        assert page.count("/snapshot/birds/view/") == 2
    finally:
        site.close()


def test_control_characters_of_recorded_text_are_seen_and_turn_nothing_around(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "birds")
    title = "a\0b\x1b \u202egnp.exe\u2066" + "x" * 1_000_000
    with Writer.open(snapshot) as writer:
        writer.view(View(PAGE, PAGE, PAGE, title, timestamp="20250301120000"), {})
    site = Site([], [snapshot])
    try:
        for path in ("/snapshot/birds", "/snapshot/birds/views", "/snapshot/birds/map"):
            text = site.page(path).body.decode()
            assert "a␀b␛ ⟨U+202E⟩gnp.exe⟨U+2066⟩xxx" in text
            assert len(text) < 50_000
            assert not re.search("[\0\x1b\u202e\u2066]", text)
    finally:
        site.close()


@pytest.mark.slow
def test_hostile_and_endless_texts_run_nothing_and_fit_the_screen(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "birds")
    endless = EVIL + "x" * 20_000
    with Writer.open(snapshot) as writer:
        resources = {"text": endless.encode(), "dom": endless.encode()}
        writer.view(View(PAGE, PAGE, "javascript:alert(1)", endless, timestamp="20250301120000"), resources)
        writer.conversion(PAGE, endless, extractor=EVIL, version="1", refers_to=None, options={**OPTIONS, "title": EVIL}, timestamp="20250301120009")  # fmt: skip
    files = make_run(tmp_path / "run", snapshot, [EVIL], **{EVIL: endless})
    (name,) = (path.name.removesuffix(".jsonl") for path in files.traces.iterdir())
    size = {"width": 390, "height": 800}
    with viewed(files.path, cache=tmp_path) as url, chromium(viewport=size) as page:
        page.set_default_timeout(STARTS * 1000)
        said: list[str] = []
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        for path in ("/", "/run/run", f"/run/run/attempt/{name}", "/snapshot/birds", "/snapshot/birds/map", "VIEW", "CAPTURE", f"/snapshot/birds/text?{urlencode({'address': PAGE})}"):  # fmt: skip
            page.goto(addressed(url, path))
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            assert page.locator("a[href^=javascript]").count() == 0
        assert not said
        assert {urlsplit(one).hostname for one in page.requested if not one.startswith("data:")} == {"127.0.0.1"}  # fmt: skip


def test_a_capture_shows_request_answer_verdict_and_text(url: str) -> None:
    text = settled(f"{url}/snapshot/birds/captures?q=2012")
    path = re.search(r'href="(/snapshot/birds/capture/[^"]+)"', text)
    assert path
    text = settled(url + path[1].replace("&amp;", "&"))
    assert ">exact<" in text
    assert "this capture" in text
    assert "recorded once" in text  # what decides it
    assert "Bird 9 weighed 3700 g" in text


def test_lookups_keep_the_evidence_of_the_last_sites_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer.open(tmp_path / "many") as writer:
        for site in range(6):
            for page in range(4):
                request, body = Request("GET", f"https://site{site}.test/?page={page}"), f"<p>{site} {page}"
                writer.exchange(Exchange(request, 200, "OK", (("Content-Type", "text/html"),), body.encode(), START, "s", 1, 2))  # fmt: skip
    monkeypatch.setattr("stillweb.harness.view.snapshot_pool.LEARNT", 10)
    shelf = Site([], [tmp_path / "many"]).shelf
    snapshot = shelf.get("many")
    assert snapshot is not None
    for site in (0, 1, 2, 3, 4, 5, 0, 1):
        hit = shelf.lookup("many", Request("GET", f"https://site{site}.test/?page=1"))
        assert hit.response is not None
        assert hit.response.body == f"<p>{site} 1".encode()
        sizes = [one.size for one in snapshot.matcher()._sites.values()]
        assert sizes[-1] == 4
        assert sum(sizes) <= 10


def test_the_texts_are_searched(url: str) -> None:
    text = settled(f"{url}/snapshot/birds/texts?q=weighed")
    path = re.search(r'href="(/snapshot/birds/text\?[^"]+)"', text)
    assert path
    assert "Bird 8 weighed 3800 g." in get(url + path[1])[1]
    assert "no word to look for" in get(f"{url}/snapshot/birds/texts?q=%22")[1]


def test_words_lost_from_a_text_are_marked(url: str) -> None:
    view = re.search(r"/snapshot/birds/view/\w+", settled(f"{url}/snapshot/birds"))
    assert view
    text = get(url + view[0])[1]
    assert "<del>Hidden words" in text
    assert "<ins>" in text


def test_misses_of_runs_lead_to_their_steps(url: str) -> None:
    text = settled(f"{url}/snapshot/birds/misses")
    assert re.search(r'href="/run/run1/attempt/wrong\.1#step-\d"', text)
    assert "https://birds.test/nowhere" in text


def test_runs_are_compared_with_what_got_worse_first(url: str) -> None:
    text = settled(f"{url}/compare?run=run1&run=run2&metric=item_f1")
    assert rows(text) == ["right", "wrong"]
    assert "2 of 3 tasks changed, the largest change first" in text
    assert "worse by" in text
    assert "better by" in text
    assert "no interval: it takes 6 clusters" in text
    assert rows(settled(f"{url}/compare?run=run1&run=run2&show=better&metric=item_f1")) == ["wrong"]
    assert rows(settled(f"{url}/compare?show=all")) == ["right", "wrong", "babble"]
    status, text, _ = get(f"{url}/compare?run=run1&run=run9")
    assert status == 404
    assert "run9" in text


@pytest.mark.slow
def test_a_comparison_leads_to_the_first_divergence(url: str) -> None:
    with chromium() as page:
        page.goto(f"{url}/compare")
        page.locator("tr[data-row=wrong]").get_by_role("link", name="first divergence").click()
        page.wait_for_load_state()
        assert "One agent went on, the other answered after 1 call alike" in page.locator("main").inner_text()
        assert "7|3900\n9|3800" in page.get_by_label("run1/wrong.1").inner_text()
        assert "It called nothing more" in page.get_by_label("run2/wrong.1").inner_text()


def call(n: int, url: str, text: str) -> dict[str, Any]:
    """A tool call as a trace has it."""
    return {"event": "tool_call", "n": n, "tool": "fetch", "arguments": {"url": url}, "output": {"digest": text, "text": text}}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "at", "how"),
    [
        ([call(1, "a", "x"), call(2, "b", "y")], 2, ""),
        ([call(1, "a", "x"), call(2, "c", "y")], 1, "the agents called otherwise"),
        ([call(1, "a", "z"), call(2, "b", "y")], 0, "the same call was answered otherwise"),
        ([call(1, "a", "x")], 1, "one agent went on, the other answered"),
        ([call(1, "a", "x"), call(2, "b", "y"), {"event": "answer", "text": "!"}], 2, "the same calls with the same results, another answer"),
    ],
)  # fmt: skip
def test_the_first_divergence_is_a_call_a_result_or_the_answer(other: list[Any], at: int, how: str) -> None:
    one = Trace(Path("a"), {}, (call(1, "a", "x"), call(2, "b", "y")))
    assert first_divergence(one, Trace(Path("b"), {}, tuple(other))) == (at, how)


def test_two_snapshots_are_compared_and_touched_tasks_named(tmp_path: Path) -> None:
    old = make_snapshot(tmp_path / "old")
    new = make_snapshot(tmp_path / "new", DOM.replace("3800 g", "3850 g"))
    files = make_run(tmp_path / "run", old, ["wrong"], wrong=WRONG)
    with viewed(files.path, old, new, cache=tmp_path) as url:
        assert until(lambda: "Pages</h2>" in get(f"{url}/snapshots/old/new")[1])
        assert until(lambda: "Being worked out" not in get(f"{url}/snapshots/old/new")[1])
        text = get(f"{url}/snapshots/old/new")[1]
        assert PAGE in text
        assert "<b>wrong</b>" in text
        assert text.count("/shot/") >= 2


def test_the_state_of_a_gateway_is_drawn_by_these_pages(tmp_path: Path) -> None:
    with sw.replay(make_snapshot(tmp_path / "birds")) as web, httpx.Client(**web.httpx()) as client:
        client.get("https://birds.test/<script>alert(1)</script>")
        told = client.get("http://stillweb.local/", headers={"Accept": "text/html,*/*;q=0.8"})
        assert client.get("http://stillweb.local/").json()["misses"] == 1
    policy = told.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    page = html.fromstring(told.text)
    assert page.findtext(".//h1") == "Stillweb replay"
    assert page.findtext(".//ul/li").startswith("GET")
    assert "<script>alert" not in told.text
    (css,) = page.findall(".//style")
    assert b64encode(sha256(css.text.encode()).digest()).decode() in policy


PAGES = [
    "/",
    "/compare",
    "/divergence/run1/wrong.1/run2/wrong.1",
    "/run/run1",
    "/run/run1?by=attempt",
    "/run/run1/attempt/wrong.1",
    "/run/run1/attempt/babble.1",
    "/run/run1/attempt/wrong.1/page/1",
    "/run/run1/agreement",
    "/run/run1/figures",
    "/snapshot/birds",
    "/snapshot/birds/views",
    "/snapshot/birds/map",
    "/snapshot/birds/captures",
    "/snapshot/birds/texts?q=weighed",
    "/snapshot/birds/misses",
    "/snapshot/birds/failures",
    "/snapshots/birds/birds",
    "/nowhere",
    "VIEW",
    "CAPTURE",
    "TEXT",
]


def addressed(url: str, path: str) -> str:
    """The whole address of a page; of a view's and a capture's the first."""
    if path == "VIEW":
        found = re.search(r"/snapshot/birds/view/\w+", settled(f"{url}/snapshot/birds"))
    elif path == "CAPTURE":
        found = re.search(r"/snapshot/birds/capture/[^\"]+", settled(f"{url}/snapshot/birds/captures?q=2012"))
    elif path == "TEXT":
        found = re.search(r"/snapshot/birds/text\?[^\"]+", settled(f"{url}/snapshot/birds/texts?q=weighed"))
    else:
        return url + path
    assert found
    return url + found[0].replace("&amp;", "&")


def violations(page: Any, *rules: str) -> Any:
    """Return what axe-core finds on a page that has it, by all rules or these."""
    return page.evaluate(
        "(rules) => axe.run(document, {iframes: false, ...(rules.length && {runOnly: rules})})"
        ".then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))",
        rules,
    )


class Busy(Site):
    """A site on which everything is still being worked out."""

    def soon(self, key: Any, work: Any) -> Any:
        return None


WAITING = ["/compare", "/snapshot/birds/texts?q=bird", "/snapshot/bad.wacz"]


@pytest.fixture(scope="module")
def every_page(url: str, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Addresses of a page of each kind: also those that wait, a gateway's, a check's, and exports."""
    out = tmp_path_factory.mktemp("pages")
    (out / "bad.wacz").write_bytes(b"no archive")
    once = make_run(out / "run", world / "birds", ["right", "wrong", "babble"], wrong=WRONG, babble=BABBLE)
    export_file([once.path], out / "report.html")
    export_views([world / "birds"], out / "views.html")
    picture = png(40, 30)
    bad = ViewCheck(PAGE, EVIL, ["click More"], 0.5, 0.5, 0.5, 3, ["GET /a"], ["GET /b"], ["GET /c"], "differs", picture, picture, picture, ["- a"])  # fmt: skip
    good = ViewCheck(PAGE, "Birds", [], 1.0, 1.0, 1.0)
    (out / "check.html").write_text(
        check_page(CheckReport([good, bad], 1.0, "A warning."), "birds", "0" * 64)
    )
    with sw.replay(world / "birds") as web, httpx.Client(**web.httpx()) as client:
        client.get("https://birds.test/none")
        told = client.get("http://stillweb.local/", headers={"Accept": "text/html"})
        (out / "status.html").write_bytes(told.content)
    files = ["report.html", "views.html", "check.html", "status.html"]
    with ViewServer(Busy([world / "run1", world / "run2"], [out / "bad.wacz"])) as busy:
        yield [
            *(addressed(url, path) for path in PAGES),
            *(busy.url.rstrip("/") + path for path in WAITING),
            *((out / name).as_uri() for name in files),
        ]


def quiet(page: Any) -> None:
    """Keep pages that wait from being replaced while they are looked at."""
    page.route("**/static/htmx*", lambda route: route.abort())


CONTROLS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, iframe, [tabindex='0']")]
  .filter((one) => one.checkVisibility() && one.type !== "hidden")"""
# A busy machine may give the focus a few frames before it draws its ring.
REACHED = """async () => {
  const one = document.activeElement;
  if (!one || one === document.body) return "";
  const bare = () => !one.closest("svg") && one.localName !== "iframe" && getComputedStyle(one).outlineStyle === "none";
  for (let frames = 0; frames < 30 && bare(); frames++) await new Promise(requestAnimationFrame);
  one.dataset.reached = "";
  return bare() ? `no focus is seen: ${one.outerHTML.slice(0, 200)}` : "reached";
}"""


def unreached(page: Any) -> list[str]:
    """Return what is wrong with a page that is walked through by Tab: controls without a ring, and those left out."""
    most = 3 * page.evaluate(f"({CONTROLS})().length") + 50
    said = []
    for _ in range(most):
        page.keyboard.press("Tab")
        said.append(page.evaluate(REACHED))
        if not said[-1]:
            break
    left = page.evaluate(
        f"({CONTROLS})().filter((one) => !('reached' in one.dataset)).map((one) => one.outerHTML.slice(0, 200))"
    )
    wrong = [*{one for one in said if one not in ("", "reached")}, *left]
    return wrong or ([f"after {most} keys no end"] if said[-1] else [])


@pytest.mark.slow
def test_each_page_passes_axe_fits_the_screen_and_is_worked_by_the_keyboard(every_page: list[str]) -> None:
    """All of this in one walk, as opening the pages takes a third of the time."""
    with chromium(bypass_csp=True) as page:
        quiet(page)
        page.add_init_script(path=AXE)
        found = {}
        for address in every_page:
            page.goto(address)
            # no style for narrow screens colours, shows or hides anything, and one for the dark colours alone
            for scheme, width, rules in (
                ("light", 1280, ()),
                ("dark", 390, ("color-contrast", "target-size")),
            ):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 800})
                said = violations(page, *rules)
                wide = page.evaluate("document.documentElement.scrollWidth")
                if said or wide > width:
                    found[address, scheme, width] = (said, wide)
                if scheme == "light" and (wrong := unreached(page)):
                    found[address, "Tab"] = wrong
        assert not found


@pytest.mark.slow
def test_the_keyboard_alone_leads_through_a_run(url: str) -> None:
    with chromium() as page:
        page.goto(f"{url}/run/run1")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/attempt/wrong.1")
        page.keyboard.press("n")
        page.wait_for_url("**/attempt/wrong.2")
        page.keyboard.press("p")
        page.wait_for_url("**/attempt/wrong.1")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.closest('li').id") == "step-1"
        page.goto(f"{url}/run/run1?by=attempt")
        page.keyboard.press("/")
        page.keyboard.type("babb")
        page.locator("tr[data-row='right.1']").wait_for(state="detached")
        assert "q=babb" in page.url


@pytest.mark.slow
def test_a_run_in_progress_fills_by_itself(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    aside = tmp_path / "aside.jsonl"
    (run / "traces" / "wrong.2.jsonl").rename(aside)
    with viewed(run, cache=tmp_path) as url, chromium() as page:
        page.goto(f"{url}/run/run")
        cell = page.get_by_label("wrong, epoch 2")
        assert cell.inner_text() == "…"
        aside.rename(run / "traces" / "wrong.2.jsonl")
        assert until(lambda: page.get_by_label("wrong, epoch 2").inner_text() == "0")


def test_a_large_run_is_shown_in_pages(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    settings = json.loads((run / "run.json").read_text())
    assert settings["settings"]["epochs"] == 2
    settings["settings"]["epochs"] = 80
    (run / "run.json").write_text(json.dumps(settings))
    with viewed(run, cache=tmp_path) as url:
        first, third = (get(f"{url}/run/run?by=attempt&page={n}")[1] for n in (1, 3))
        assert (len(rows(first)), len(rows(third))) == (100, 40)
        assert "Page 3 of 3" in third


def test_a_folder_that_is_neither_run_nor_snapshot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs" / "run1" / "traces").mkdir(parents=True)
    done = stillweb("view", tmp_path / "runs", "--no-open")
    assert done.code == 2
    assert done.err.endswith(f"and is not a run. It holds runs: {tmp_path}/runs/run1\n")


@pytest.mark.slow
def test_an_exported_folder_is_walked_without_a_server(tmp_path: Path, world: Path) -> None:
    out = tmp_path / "pages"
    done = stillweb("view", world / "run1", world / "run2", "--export", out)
    assert (done.code, done.out.strip()) == (0, str(out / "index.html"))
    with chromium() as page:
        page.goto((out / "index.html").as_uri())
        page.get_by_role("link", name="run1", exact=True).click()
        page.locator("select[name=show]").select_option("unparsable")
        assert page.locator("tr[data-row]:visible").count() == 1
        page.locator("select[name=show]").select_option("")
        page.locator("tr[data-row=wrong] a.cell").first.click()
        page.locator("td.cell-wrong").get_by_role("link", name="from step 1").click()
        page.locator("#step-1").get_by_role("link", name="Page it saw").click()
        page.wait_for_load_state()
        assert page.locator("img.shot").evaluate("one => one.naturalWidth") == 64
        page.goto((out / "compare.html").as_uri())
        page.locator("tr[data-row=wrong]").get_by_role("link", name="first divergence").click()
        assert "one agent went on" in page.locator("main").inner_text().lower()
        assert not page.complaints
        assert all(one.startswith(("file:", "data:")) for one in page.requested)
    links = {
        link
        for one in out.glob("*.html")
        for link in re.findall(r'(?:href|src)="([^"#:]+)[#"]', one.read_text())
    }
    assert not {link for link in links if not (out / link).is_file()}
    done = stillweb("view", world / "run1", "--export", out)
    assert done.code == 2
    assert "not empty" in done.err


@pytest.mark.slow
def test_a_report_is_these_pages_in_one_file(tmp_path: Path, world: Path) -> None:
    out = export_file([world / "run1"], tmp_path / "report.html")
    with chromium() as page:
        page.goto(out.as_uri())
        page.locator("tr[data-row=wrong] a.cell").first.click()
        page.get_by_label("wrong.1", exact=True).locator("td.cell-wrong").get_by_role(
            "link", name="from step 1"
        ).click()
        page.locator("li:target").get_by_role("link", name="Page it saw").click()
        assert (
            page.locator("section:target img.shot").evaluate(
                "one => one.decode().then(() => one.naturalWidth)"
            )
            == 64
        )
        assert page.requested[:1] == [out.as_uri()]
        assert all(one.startswith(("file:", "data:")) for one in page.requested)
        assert not page.complaints
    text = out.read_text()
    assert EVIL not in text
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert not targets - set(re.findall(r'\sid="([^"]+)"', text))


def fill(form: Any, **values: Any) -> None:
    """Fill in a review."""
    for name, value in values.items():
        field = form.locator(f"[name={name}]")
        if name in ("class", "nearest_class"):
            field.select_option(value)
        else:
            field.fill(str(value))


REVIEW = {
    "reviewer": "bob",
    "class": "drift",
    "decisive_event": 1,
    "nearest_class": "self-rewriting",
    **WORDS,
}


@pytest.mark.slow
def test_an_exported_review_is_kept_until_its_file_is_saved_and_taken_in(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    done = stillweb("review", run, "--export", tmp_path / "review.html")
    assert done.code == 0
    with chromium() as page:
        page.goto((tmp_path / "review.html").as_uri())
        form = page.get_by_label("wrong.1", exact=True).locator("form.review")
        fill(form, **REVIEW)
        page.reload()
        assert form.locator("[name=cause]").input_value() == WORDS["cause"]
        form.locator("button").click()
        page.reload()
        assert form.locator("[name=cause]").input_value() == ""
        with page.expect_download() as download:
            page.locator("a.save").first.click()
        download.value.save_as(tmp_path / "reviews.jsonl")
        assert page.complaints == []
    assert stillweb("review", run, "--import", tmp_path / "reviews.jsonl").out == "1 review taken\n"
    assert read_trace(run / "traces" / "wrong.1.jsonl").of("review")[0]["reviewer"] == "bob"


@pytest.mark.slow
def test_what_is_typed_outlives_a_reload_until_it_is_saved(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    with viewed(run, cache=tmp_path) as url, chromium() as page:
        form = page.locator("form.review")
        page.goto(f"{url}/run/run/attempt/wrong.2")
        fill(form, cause="half of a thought")
        page.goto(f"{url}/run/run/attempt/wrong.1")
        fill(form, **REVIEW)
        form.locator("button").click()
        page.wait_for_url("**#review")
        assert form.locator("[name=cause]").input_value() == ""
        page.goto(f"{url}/run/run/attempt/wrong.2")
        assert form.locator("[name=cause]").input_value() == "half of a thought"


def test_a_review_of_a_damaged_or_changed_trace_is_refused(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    path = run / "traces" / "wrong.1.jsonl"
    whole = path.read_bytes()
    with viewed(run, cache=tmp_path) as url:
        address = f"{url}/run/run/attempt/wrong.1"
        token = re.search(r'name="token" value="([^"]+)"', get(address)[1])
        assert token
        form = {**REVIEW, "token": token[1], "task": "wrong", "attempt": 1}
        assert "is not the attempt that was reviewed" in get(address, form={**form, "trace": "0" * 64})[1]
        assert get(address, form={**form, "task": "right"})[0] == 422
        assert get(address, form={**form, "cause": "x" * 200_000})[0] == 413
        path.write_bytes(whole[:50])
        status, text, _ = get(address, form=form)
        assert (status, "wrong.1.jsonl:1: not JSON" in text) == (422, True)
        path.write_bytes(whole)
        assert get(address, form=form)[0] == 303


def test_a_certificate_of_other_traces_is_not_shown_as_theirs(tmp_path: Path, world: Path) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    hash_ = write_certificate(run)["hash"]
    assert hash_ in write_report(run).read_text()
    path = run / "traces" / "right.1.jsonl"
    path.write_text(path.read_text().replace('"status":"scored"', '"status":"zero"'))
    page = write_report(run).read_text()
    assert hash_ not in page
    assert "The certificate is not of the traces as they are now" in page


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"kind": "script"', '"kind": "a model"', "agent"),
        ('"accept": "rule"', '"accept": "exact"', "settings"),
    ],
)
def test_a_certificate_of_another_agent_or_other_settings_is_not_shown_as_theirs(
    tmp_path: Path, world: Path, old: str, new: str, told: str
) -> None:
    run = shutil.copytree(world / "run1", tmp_path / "run")
    hash_ = write_certificate(run)["hash"]
    path = run / "run.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    page = write_report(run).read_text()
    assert hash_ not in page
    assert f"The certificate is not of the {told} that run.json tells." in page


def test_a_report_is_the_same_bytes_twice(tmp_path: Path, world: Path) -> None:
    one, two = (write_report(world / "run1", tmp_path / f"{n}.html").read_bytes() for n in (1, 2))
    assert one == two


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (1.0, "1"), (0.0, "0"), (2 / 3, "0.667"), (0.0004, "0.0004"), (0.99996, "0.99996")],
)
def test_numbers_are_short_and_look_whole_only_where_they_are(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.slow
def test_a_button_replays_a_page_through_the_gateway(tmp_path: Path) -> None:
    dom = "<title>t</title><h1>Birds</h1><script>document.write('made by ' + 'a script')</script>"
    snapshot = make_snapshot(tmp_path / "birds", dom)
    with viewed(snapshot, cache=tmp_path) as url, chromium() as page:
        page.goto(addressed(url, "VIEW"))
        page.set_default_timeout(STARTS * 1000)
        page.get_by_role("button", name="Replay the page").click()
        page.get_by_role("heading", name="What it asked for").wait_for()
        assert "made by a script" in page.locator("main").inner_text()
        assert f"GET {PAGE}" in page.locator("table").inner_text()
        assert page.get_by_alt_text("The page as replayed").evaluate("one => one.naturalWidth") > 100


@pytest.fixture(scope="module")
def typing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an agent that opens a page in its browser, types, and reads the page without it."""
    folder = tmp_path_factory.mktemp("typing")
    dom = "<!DOCTYPE html><title>t</title><h1>Birds</h1><script>document.body.append('by a script')</script>"
    typed = "() => { document.querySelector('h1').append(' typed') }"
    steps = [
        {"call": "browser_navigate", "with": {"url": PAGE}},
        {"call": "browser_evaluate", "with": {"function": typed}},
        {"call": "fetch", "with": {"url": PAGE}},
    ]
    agent = {"agent": "script", "default": {"steps": steps, "answer": "7|3900"}}
    (folder / "typing.yaml").write_text(yaml.safe_dump(agent), encoding="utf-8")
    settings = Settings(
        agent=str(folder / "typing.yaml"),
        snapshots=(str(make_snapshot(folder / "birds", dom)),),
        contracts=("fetch", "playwright-mcp"),
    )
    files = start_run(folder / "typing", settings, [bird_task("typed")])
    run_attempts(files.path, display=SilentDisplay())
    return files.path


@pytest.mark.slow
def test_the_page_at_a_step_is_made_again_from_the_calls_before_it_and_kept(
    tmp_path: Path, typing: Path
) -> None:
    steps = {e["tool"]: e["n"] for e in read_trace(typing / "traces" / "typed.1.jsonl").of("tool_call")}
    typed, opened = steps["browser_evaluate"], steps["browser_navigate"]
    with viewed(typing, cache=tmp_path) as url, chromium(bypass_csp=True) as page:
        page.set_default_timeout(STARTS * 1000)
        page.goto(f"{url}/run/typing/attempt/typed.1")
        page.locator(f"#step-{typed}").get_by_role("link", name="Page made again").click()
        page.get_by_role("button", name="Make the page again").click()
        page.get_by_text("Each call gave the result of the trace").wait_for()
        assert "Birds typed" in page.locator("main pre").inner_text()
        assert "by a script" in page.locator("main pre").inner_text()
        assert page.get_by_alt_text("The page at step").evaluate("one => one.naturalWidth") > 100
        assert page.frame_locator("iframe").locator("h1").inner_text() == "Birds typed"
        page.reload()
        assert page.get_by_role("button", name="Make the page once more").is_visible()  # kept
        for scheme, width in (("light", 1280), ("dark", 390)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            page.add_script_tag(path=AXE)
            assert not violations(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("link", name="Page before").click()
        page.get_by_role("button", name="Make the page again").click()
        page.get_by_text("Each call gave").wait_for()
        assert "typed" not in page.locator("main pre").inner_text()
        assert page.url.endswith(f"/page/{opened}")
        page.goto(f"{url}/run/typing/attempt/typed.1/page/{steps['fetch']}")
        page.get_by_role("button", name="Make the page again").click()
        page.get_by_text("opened in one").wait_for()
        assert "by a script" in page.get_by_label("Its text").locator("pre").inner_text()
        assert page.get_by_role("status").inner_text().startswith("Each call made again gave the result")
        assert "script" in page.get_by_label("What the call gave").locator("ins").inner_text()


CALL, ADDRESS = "the call gave another result", "its address now has another answer"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "member", "told"),
    [("browser_navigate", "output", CALL), ("fetch", "output", CALL), ("fetch", "captures", ADDRESS)],
)
def test_a_step_that_repeats_otherwise_than_its_trace_says_so(
    tmp_path: Path, typing: Path, tool: str, member: str, told: str
) -> None:
    run = shutil.copytree(typing, tmp_path / "typing")
    path = run / "traces" / "typed.1.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    first = next(event for event in events if event.get("tool") == tool)
    for one in [first["output"]] if member == "output" else first["captures"]:
        one["digest"] = "sha256:" + "0" * 64
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    with viewed(run, cache=tmp_path) as url:
        token = str(
            html.fromstring(get(f"{url}/run/typing/attempt/typed.1/page/{first['n']}")[1])
            .forms[0]
            .fields["token"]
        )
        status, text, _ = get(
            f"{url}/run/typing/attempt/typed.1/page/{first['n']}", {"Origin": url}, {"token": token}
        )
        assert status == 200
        assert f"Step {first['n']}: {told} than the trace tells" in text
        assert "gave the result of the trace" not in text
        assert get(f"{url}/run/typing/attempt/typed.1/page/9999")[0] == 404
        assert (
            get(f"{url}/run/typing/attempt/typed.1/page/{first['n']}", {"Origin": url}, {"token": "x"})[0]
            == 403
        )


def test_presumed_answers_are_counted_as_the_summary_counts_them(tmp_path: Path) -> None:
    files = make_run(tmp_path / "run", make_snapshot(tmp_path / "birds"), ["right", "wrong"], wrong=WRONG)
    sure = write_certificate(files.path)
    for path in sorted(files.traces.iterdir()):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        call = next(event for event in events if event.get("event") == "tool_call")
        call |= {"confidence": 0.5, "doubt": 0.75, "presumed": 2}
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    summary = summarise(files.path)
    sums = sums_of([row_of(path, "", 1) for path in sorted(files.traces.iterdir())], "")
    assert (summary.presumed, summary.expected_wrong) == (4, 1.5)
    assert (sums.presumed, sums.doubt) == (4, 1.5)
    certificate = write_certificate(files.path)
    assert certificate["confidence"] == {"presumed": 4, "expected_wrong": 1.5}
    assert certificate["hash"] == sure["hash"]


def record(path: Path, url: str, body: bytes, kind: str = "text/html", day: int = 0) -> None:
    """Record one answer into a snapshot."""
    moment = START + timedelta(days=day)
    with Writer.open(path) as writer:
        writer.exchange(
            Exchange(Request("GET", url), 200, "OK", (("Content-Type", kind),), body, moment, "s", 1, 2)
        )


@pytest.mark.slow
def test_a_recording_in_progress_fills_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    record(path, "https://birds.test/1", b"<p>one</p>")
    with viewed(path, cache=tmp_path) as url, chromium() as page:
        page.set_default_timeout(STARTS * 1000)
        page.goto(f"{url}/snapshot/growing")
        page.get_by_text("A recording is under way").wait_for()
        sums = page.get_by_label("Sums").locator(".card").first
        assert sums.inner_text().split() == ["1", "captures"]
        record(path, "https://birds.test/2", b"<p>two</p>", day=3)
        page.locator(".card b").filter(has_text="2").wait_for()
        assert page.locator("svg.days circle").count() == 2
        assert "https://birds.test/2" in get(f"{url}/snapshot/growing/captures")[1]


def test_layers_stand_on_a_line_of_days(tmp_path: Path) -> None:
    record(tmp_path / "old", "https://birds.test/1", b"<p>one</p>")
    record(tmp_path / "new", "https://birds.test/2", b"<p>two</p>", day=10)
    library = Site()
    name = library.shelf.put([str(tmp_path / "old"), str(tmp_path / "new")])
    try:
        assert until(lambda: b"svg" in library.page(f"/snapshot/{name}").body)
        circles = html.fromstring(library.page(f"/snapshot/{name}").body).findall(".//svg/circle")
    finally:
        library.close()
    assert [(one.get("cx"), one.find("title").text.rsplit("/", 1)[1]) for one in circles] == [
        ("100", "new"),
        ("0", "old"),
    ]
