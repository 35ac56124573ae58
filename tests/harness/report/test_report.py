"""The report: one file that shows what the traces say, with nothing from elsewhere, read in Chromium."""

import json
import re
from datetime import UTC, datetime

import pytest

from stillweb.harness.report import number, write_report
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.review.page import export_review
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.support.pages import chromium
from tests.support.runs import SHELF, bird_task, make_run, write_script

NAMES = ["right", "wrong", "silent", "babble", "broken"]
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082".replace(
        " ", ""
    )
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    files = make_run(tmp_path_factory.mktemp("run"), NAMES)
    write_certificate(files.path)
    return write_report(files.path)


@pytest.mark.slow
def test_the_file_asks_for_nothing_and_reads_well_in_light_and_dark(report):
    for scheme in ("light", "dark"):
        with chromium(color_scheme=scheme, viewport={"width": 1100, "height": 800}) as page:
            page.goto(report.as_uri())
            assert page.requested == [report.as_uri()]
            assert page.complaints == []
            assert page.title() == "Stillweb run"
            ink, ground = page.evaluate(
                "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
            )
            assert contrast(ink, ground) > 7


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(report, scheme):
    with chromium(color_scheme=scheme) as page:
        page.goto(report.as_uri())
        pairs = page.evaluate(
            """() => [...document.querySelectorAll('.chip, td, th, p, dt, dd, a, summary, pre')].map(e => {
                let ground = e, colour;
                while ((colour = getComputedStyle(ground).backgroundColor) === 'rgba(0, 0, 0, 0)' && ground.parentElement)
                  ground = ground.parentElement;
                return [getComputedStyle(e).color, colour, e.className + ' ' + e.textContent.slice(0, 30)];
            })"""
        )
    weak = {
        (text, round(contrast(ink, ground), 2)) for ink, ground, text in pairs if contrast(ink, ground) < 4.5
    }
    assert weak == set()


@pytest.mark.slow
def test_parts_sum_to_the_whole_and_cells_are_marked_by_sign_not_only_colour(report):
    with chromium() as page:
        page.goto(report.as_uri())
        key = page.locator("ul.key").inner_text()
        assert "2 scored" in key
        assert "2 + 2 + 1 = 5" in key
        wrong = page.locator("details#a-wrong\\.2f1")
        cell = wrong.locator("td.cell-wrong")
        assert "✗" in cell.inner_text()
        assert "3800" in cell.inner_text()
        assert "should be 3700" in cell.inner_text()
        assert "seen in step 1, but lost" in cell.inner_text()
        assert wrong.locator("td.cell-right").count() == 3
        assert wrong.locator(".chip.v-miss").all_inner_texts() == ["1 miss", "miss"]
        assert "https://shelf.example/ differs in path" in wrong.locator(".near").inner_text()
        assert page.locator("[role=img][aria-label='wrong']").count() == 1


@pytest.mark.slow
def test_only_what_went_wrong_is_open_and_links_lead_to_it(report):
    with chromium() as page:
        page.goto(report.as_uri())
        states = page.evaluate(
            "() => Object.fromEntries([...document.querySelectorAll('details.attempt')].map(d => [d.querySelector('b').textContent, d.open]))"
        )
        assert states == {
            "right/1": False,
            "wrong/1": True,
            "silent/1": True,
            "babble/1": True,
            "broken/1": True,
        }
        broken = page.evaluate(
            "() => [...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).length"
        )
        assert broken == 0


@pytest.mark.slow
def test_markup_in_tasks_answers_and_outputs_stays_text(tmp_path):
    evil = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"
    script = {
        "default": {"steps": [{"call": "fetch", "with": {"url": evil}, "may_fail": True}], "answer": evil}
    }
    settings = Settings(agent=write_script(tmp_path, script), contracts=(SHELF,))
    task = bird_task(evil)
    files = start_run(tmp_path / "run", settings, [task])
    run_attempts(files.path, display=SilentDisplay())
    page_file = write_report(files.path)
    with chromium() as page:
        page.goto(page_file.as_uri())
        assert page.title() == "Stillweb run"
        assert page.requested == [page_file.as_uri()]
        assert evil in page.locator("details.attempt").inner_text()


def test_a_views_screenshot_is_shown_once_and_linked_after(tmp_path):
    address = view_address("https://shelf.example/", [])
    with Writer.open(tmp_path / "snap") as writer:
        writer.view(
            View(address, address, address, "Shelf", timestamp="20250101000000"),
            {"view": PIXEL, "text": b"Start here."},
        )
    url = "https://shelf.example/"
    steps = [{"call": "fetch", "with": {"url": url}}, {"call": "fetch", "with": {"url": url}}]
    settings = Settings(
        agent=write_script(tmp_path, {"default": {"steps": steps, "answer": "NONE"}}),
        contracts=(SHELF,),
        snapshots=(str(tmp_path / "snap"),),
    )
    files = start_run(tmp_path / "run", settings, [bird_task("a")])
    run_attempts(files.path, display=SilentDisplay())
    text = write_report(files.path).read_text()
    assert text.count("data:image/png;base64,") == 1
    assert text.count("View shown above") == 1
    assert f"Screenshot of {address}" in text
    with Writer.open(tmp_path / "snap") as writer:
        writer.metadata("urn:note", {"added": datetime.now(UTC).isoformat()})
        writer.view(
            View(address + "2", address, address, "Other", timestamp="20250101000000"), {"view": PIXEL}
        )
    assert "not the one of the run any more" in write_report(files.path).read_text()


def test_a_snapshot_that_is_gone_is_said_and_the_rest_is_there(tmp_path):
    with Writer.open(tmp_path / "snap") as writer:
        writer.metadata("urn:note", {"a": 1})
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,), snapshots=(str(tmp_path / "snap"),))
    files = start_run(tmp_path / "run", settings, [bird_task("a")])
    run_attempts(files.path, display=SilentDisplay())
    (tmp_path / "snap").rename(tmp_path / "moved")
    text = write_report(files.path).read_text()
    assert "can&#39;t be opened, so no screenshots are shown" in text
    assert "a/1" in text


def test_a_report_is_the_same_bytes_twice(tmp_path):
    files = make_run(tmp_path, NAMES)
    assert (
        write_report(files.path, tmp_path / "1.html").read_bytes()
        == write_report(files.path, tmp_path / "2.html").read_bytes()
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.0, "1"),
        (0.0, "0"),
        (0.5, "0.5"),
        (2 / 3, "0.667"),
        (0.0004, "0.0004"),
        (-0.00001, "-0.00001"),
        (0.99996, "0.99996"),
    ],
)
def test_numbers_are_short_and_look_whole_only_where_they_are(value, text):
    assert number(value) == text


def test_a_certificate_of_other_traces_is_not_shown_as_theirs(tmp_path):
    files = make_run(tmp_path, ["right"])
    write_certificate(files.path)
    hash_ = json.loads((files.path / "certificate.json").read_text())["hash"]
    assert hash_ in write_report(files.path).read_text()
    path = files.trace_path("right", 1)
    path.write_text(path.read_text().replace('"status":"scored"', '"status":"zero"'))
    page = write_report(files.path).read_text()
    assert hash_ not in page
    assert "The certificate is not of the traces as they are now" in page
    for text in ("{", "[]", '{"hash": 1}'):
        (files.path / "certificate.json").write_text(text)
        with pytest.raises(DamagedInput, match=r"certificate\.json: not a certificate"):
            write_report(files.path)


@pytest.mark.slow
def test_a_long_prompt_is_folded_and_a_run_without_tools_says_so(tmp_path):
    prompt = "Given these pages: " + "fog and boats " * 400
    asked = Task("long", prompt, "7", meta={"problem": "How many boats?"})
    lacking = Task("gone", "Who kept the light?", "nobody", meta={"unsolvable": "page X is dead"})
    script = write_script(tmp_path, {"agent": "script", "default": {"answer": "8"}})
    files = start_run(tmp_path / "run", Settings(agent=script, contracts=()), [asked, lacking])
    run_attempts(files.path, display=SilentDisplay())
    with chromium(viewport={"width": 390, "height": 800}) as page:
        page.goto(write_report(files.path).as_uri())
        assert page.locator("dl.facts dd").last.inner_text() == "none"
        long = page.locator("details.attempt", has_text="long/1").first
        assert long.locator("p.question").inner_text() == "How many boats?"
        assert long.locator("summary", has_text="The whole prompt, 5,619 characters").count() == 1
        assert "The snapshot lacks what the task needs: page X is dead" in page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_nothing_is_wider_than_a_small_screen(tmp_path):
    url = "https://shelf.example/" + "a-very-long-path-without-any-break" * 6
    steps = [{"call": "fetch", "with": {"url": url}, "may_fail": True}]
    names = ["wide", "a-very-long-id-without-any-break" * 6]
    files = make_run(tmp_path, names, script={"default": {"steps": steps, "answer": "7|" + "9" * 300}})
    for path in (write_report(files.path), export_review(files.path, tmp_path / "review.html")):
        with chromium(viewport={"width": 360, "height": 700}) as page:
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            tables = page.locator(".scroll").all()  # wider ones are scrolled, by those who have no mouse, too
            assert tables
            assert all(table.get_attribute("tabindex") == "0" for table in tables)


@pytest.mark.slow
def test_a_text_is_read_in_its_own_direction(tmp_path):
    script = write_script(tmp_path, {"agent": "script", "default": {"answer": "page 7"}})
    asked = Task("rtl", "ما هو العنوان (page)?", "7")
    files = start_run(tmp_path / "run", Settings(agent=script, contracts=()), [asked])
    run_attempts(files.path, display=SilentDisplay())
    with chromium() as page:
        page.goto(write_report(files.path).as_uri())
        left = """(word) => { const text = document.querySelector('p.question').firstChild, range = new Range();
            range.setStart(text, text.data.indexOf(word)); range.setEnd(text, text.data.indexOf(word) + word.length);
            return range.getBoundingClientRect().left }"""
        assert page.evaluate(left, "page") < page.evaluate(left, "ما")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"kind": "script"', '"kind": "a model"', "agent"),
        ('"accept": "rule"', '"accept": "exact"', "settings"),
    ],
)
def test_a_certificate_of_another_agent_or_other_settings_is_not_shown_as_theirs(tmp_path, old, new, told):
    files = make_run(tmp_path, ["right"])
    certificate = write_certificate(files.path)
    path = files.path / "run.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    page = write_report(files.path).read_text()
    assert certificate["hash"] not in page
    assert f"The certificate is not of the {told} that run.json tells." in page
