"""The review page in a browser, served and exported: what a reviewer does there, and that none of it is lost."""

import http.client
import json
from urllib.parse import urlencode, urlsplit

import pytest

from stillweb.harness.review.page import ReviewServer, export_review
from stillweb.harness.review.reviews import COMPOSITION, import_reviews
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.support.pages import chromium
from tests.support.runs import make_run
from tests.support.waiting import HANG

WORDS = {"cause": "Took the wrong row.", "evidence": "Step 1 has both.", "why_not": "The page was right."}


@pytest.fixture
def files(tmp_path):
    return make_run(tmp_path, ["right", "wrong", "silent", "broken"])


def fill(form, **values):
    for name, value in values.items():
        if name in ("class", "nearest_class"):
            form.locator(f"[name={name}]").select_option(value)
        else:
            form.locator(f"[name={name}]").fill(str(value))


@pytest.mark.slow
def test_a_reviewer_fills_the_form_in_a_browser(files):
    form_values = {
        "reviewer": "ada",
        "class": COMPOSITION,
        "decisive_event": 3,
        "nearest_class": "drift",
        **WORDS,
    }
    with ReviewServer(files.path) as server, chromium() as page:
        page.goto(server.url)
        assert page.locator("details.attempt").count() == 3
        assert "1 attempt with nothing wrong left out" in page.locator("main").inner_text()
        item = page.locator("details.attempt", has_text="wrong/1").first
        form = item.locator("form.review")
        assert form.locator(".override").is_hidden()
        fill(form, **form_values)
        assert form.locator(".override").is_visible()
        form.locator("button").click()
        assert (
            read_trace(files.trace_path("wrong", 1)).of("review") == []
        )  # the browser wants the reason first
        fill(form, override="The miss was for an advert.")
        form.locator("button").click()
        page.wait_for_url(f"{server.url}#a-wrong*")
        chips = (
            page.locator("details.attempt", has_text="wrong/1")
            .first.locator("summary .chip")
            .all_inner_texts()
        )
        assert f"ada: {COMPOSITION}" in chips
        assert page.complaints == []
        assert {urlsplit(url).netloc for url in page.requested} == {urlsplit(server.url).netloc}
    assert read_trace(files.trace_path("wrong", 1)).of("review")[0]["cause"] == WORDS["cause"]


def post(server, form, **headers):
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=HANG)
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/review", urlencode(form), {**kind, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_server_checks_again_what_a_form_says_and_keeps_what_was_filled_in(files):
    with ReviewServer(files.path) as server:
        form = {
            "token": server._token,
            "task": "wrong",
            "attempt": "1",
            "reviewer": "ada",
            "class": COMPOSITION,
        }
        form |= {"decisive_event": "3", "nearest_class": "drift", **WORDS, "evidence": "<b>step 3"}
        status, text = post(server, form)
        assert status == 422
        assert "Not saved: final answer composition error can&#39;t be chosen" in text
        assert "&lt;b&gt;step 3</textarea>" in text
        assert post(server, {**form, "token": "guess"})[0] == 403
        assert post(server, form, Host="evil.example")[0] == 403
        assert post(server, {**form, "task": "unheard"})[0] == 422
        assert post(server, {**form, "attempt": "x"})[0] == 422
        assert post(server, {**form, "cause": "x" * 200_000})[0] == 413
        assert post(server, {**form, "override": "An advert."})[0] == 303
    assert len(read_trace(files.trace_path("wrong", 1)).of("review")) == 1


@pytest.mark.slow
def test_the_exported_page_works_without_server_and_its_file_is_taken_in(files, tmp_path):
    page_file = export_review(files.path, tmp_path / "review.html")
    with chromium() as page:
        page.goto(page_file.as_uri())
        page.locator("#f-text").fill("silent")
        assert page.locator("#shown").inner_text() == "1 of 3 shown"
        page.locator("#f-text").fill("")
        page.locator("details.attempt summary", has_text="silent/1").click()
        form = page.locator("details.attempt", has_text="silent/1").locator("form.review").last
        fill(
            form,
            reviewer="bob",
            **{"class": "drift"},
            decisive_event=1,
            nearest_class="self-rewriting",
            **WORDS,
        )
        form.locator("button").click()
        with page.expect_download() as download:
            page.locator("#save").click()
        download.value.save_as(tmp_path / "reviews.jsonl")
        assert page.complaints == []
        assert [url for url in page.requested if not url.startswith("blob:")] == [page_file.as_uri()]
    assert import_reviews(files.path, tmp_path / "reviews.jsonl") == 1
    assert read_trace(files.trace_path("silent", 1)).of("review")[0]["reviewer"] == "bob"


def form_of(page, name):
    item = page.locator(f"details.attempt[data-name='{name}']")
    item.evaluate("item => { item.open = true; }")
    return item.locator("form.review")


@pytest.mark.slow
def test_what_is_typed_outlives_a_reload_a_save_beside_it_and_a_stopped_server(files):
    whole = {"reviewer": "ada", "class": "drift", "decisive_event": 1, "nearest_class": "self-rewriting"}
    with chromium() as page:
        with ReviewServer(files.path) as server:
            page.goto(server.url)
            fill(form_of(page, "silent/1"), cause="half of a thought", **{"class": "drift"})
            page.reload()
            fill(form_of(page, "wrong/1"), **whole, **WORDS)
            form_of(page, "wrong/1").locator("button").click()
            page.wait_for_url(f"{server.url}#a-wrong*")
            assert (
                form_of(page, "wrong/1").locator("[name=cause]").input_value() == ""
            )  # saved, and no draft any more
            fill(form_of(page, "wrong/1"), cause="a second look")
            page.reload()
            for name, typed in (("wrong/1", "a second look"), ("silent/1", "half of a thought")):
                assert form_of(page, name).locator("[name=cause]").input_value() == typed
            assert form_of(page, "silent/1").locator("[name=class]").input_value() == "drift"
            fill(form_of(page, "wrong/1"), **whole, evidence="all", why_not="of it")
        with page.expect_event("framenavigated"):  # to the browser's own page of errors
            form_of(page, "wrong/1").locator("button").click()
        with ReviewServer(files.path, port=urlsplit(server.url).port) as again:
            page.goto(again.url)
            assert form_of(page, "wrong/1").locator("[name=cause]").input_value() == "a second look"
            form_of(page, "wrong/1").locator("button").click()
            page.wait_for_url(f"{again.url}#a-wrong*")
    said = [event["cause"] for event in read_trace(files.trace_path("wrong", 1)).of("review")]
    assert said == [WORDS["cause"], "a second look"]


@pytest.mark.slow
def test_what_an_exported_page_keeps_is_offered_after_a_reload_and_is_of_its_run_alone(tmp_path):
    values = {"reviewer": "bob", "class": "drift", "decisive_event": 1, "nearest_class": "self-rewriting"}
    runs = []
    for name, other in (("a", "silent"), ("b", "broken")):
        (tmp_path / name).mkdir()
        runs.append(make_run(tmp_path / name, ["wrong", other]))
    pages = [export_review(run.path, tmp_path / f"{number}.html") for number, run in enumerate(runs)]
    with chromium() as page:
        for file in pages:
            page.goto(file.as_uri())
            fill(form_of(page, "wrong/1"), **values, **WORDS)
            form_of(page, "wrong/1").locator("button").click()
            page.reload()
            assert page.locator("#save").inner_text() == "Save 1 review as a file"
            assert form_of(page, "wrong/1").locator("[name=cause]").input_value() == ""


def reviewed(run, **members):
    trace = read_trace(run.trace_path("wrong", 1))
    values = {"reviewer": "bob", "class": "drift", "decisive_event": 1, "nearest_class": "self-rewriting"}
    return {"task": "wrong", "attempt": 1, "trace": trace.hash, **values, **WORDS, **members}


def test_a_review_of_another_runs_attempt_is_refused(files, tmp_path):
    other = reviewed(files, trace="0" * 64)
    (tmp_path / "saved.jsonl").write_text(json.dumps(reviewed(files)) + "\n" + json.dumps(other) + "\n")
    with pytest.raises(
        UsageError, match=r":2: wrong/1 is not the attempt that was reviewed: that was another run's"
    ):
        import_reviews(files.path, tmp_path / "saved.jsonl")
    assert read_trace(files.trace_path("wrong", 1)).of("review") == []
    with ReviewServer(files.path) as server:
        status, text = post(server, {**other, "token": server._token})
        assert (status, "is not the attempt that was reviewed" in text) == (422, True)
        assert post(server, {**reviewed(files), "token": server._token})[0] == 303


def test_the_server_says_what_is_wrong_with_a_trace_and_goes_on(files):
    path = files.trace_path("wrong", 1)
    whole = path.read_bytes()
    with ReviewServer(files.path) as server:
        path.write_bytes(whole[:50])
        form = {"token": server._token, "task": "wrong", "attempt": "1", "reviewer": "ada", "class": "drift"}
        form |= {"decisive_event": "1", "nearest_class": "self-rewriting", **WORDS}
        status, text = post(server, form)
        assert (status, "wrong.1.jsonl:1: not JSON" in text) == (500, True)
        assert post(server, {**form, "class": ""})[0] == 500
        path.write_bytes(whole)
        assert post(server, form)[0] == 303
