"""Real kinds of pages in a real browser: recorded by steps, found by exploring, reached again."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.steps import Flow, canonical
from stillweb.proxy.check.check import check
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import Step, View
from stillweb.snapshots.writer import Writer
from tests.proxy.kinds_of_pages import handle
from tests.proxy.sites import serve

pytestmark = pytest.mark.slow  # all wait for one recording of all kinds

STEPS: dict[str, list[Any]] = {
    "/frames": [
        {"select": {"label": "Year", "option": "2020", "frame": "#one"}},
        {"click": {"role": "button", "name": "Show rivers", "frame": 'iframe[title="rivers"]'}},
        {"select": {"label": "Year", "option": "2020", "frame": 'iframe[src="/outer"] >>> #deep'}},
    ],
    "/shadow": [
        {"select": {"label": "Kind", "option": "Wind"}},
        {"click": {"role": "tab", "name": "Notes"}},
        {"click": "Deeper"},
    ],
    "/virtual": [{"scroll": {"css": "#box", "to": "bottom"}}],
    "/endless": [{"scroll": "bottom"}],
    "/tabs": [{"click": "Open the second"}],
    "/dialogs": [{"click": "Warn"}, {"click": "Ask"}, {"click": "Prompt"}],
    "/banner": [],
    "/downloads": [{"click": "CSV"}, {"click": "XLSX"}, {"click": "PDF"}, {"click": "Made here"}],
}


@dataclass
class Recorded:
    base: str
    path: Path
    results: dict[str, FetchResult]

    def views(self, snapshot: Snapshot, path: str) -> list[View]:
        url = self.base + path
        return sorted((v for v in snapshot.views() if v.url == url), key=lambda v: len(v.steps))

    def text(self, path: str, last: int = -1) -> str:
        with Snapshot.open(self.path) as snapshot:
            return (snapshot.resource("text", self.views(snapshot, path)[last].address) or b"").decode()

    def info(self, path: str) -> Any:
        with Snapshot.open(self.path) as snapshot:
            return json.loads(snapshot.resource("pageinfo", self.views(snapshot, path)[-1].address) or b"{}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("kinds") / "s"
    profile = complete(Profile())
    with serve(handle) as base, Writer.open(path, profile=profile) as writer, Recorder(writer) as recorder:
        flows = [Flow(base + page, canonical(steps)) for page, steps in STEPS.items()]
        results = Fetcher(recorder, writer, profile).fetch([], flows)
        return Recorded(base, path, dict(zip(STEPS, results, strict=True)))


@pytest.mark.parametrize("page", STEPS)
def test_all_steps_can_be_done(site: Recorded, page: str) -> None:
    assert site.results[page].ok, site.results[page].error


def test_frames_are_operated_and_read(site: Recorded) -> None:
    text = site.text("/frames")
    assert text.count("2020") >= 4  # the chosen options and the cells
    assert "Two rivers" in text
    with Snapshot.open(site.path) as snapshot:
        view = site.views(snapshot, "/frames")[-1]
        years = [field["value"] for field in view.state["fields"] if field.get("name") == "year"]
        dom = (snapshot.resource("dom", view.address) or b"").decode()
        aria = (snapshot.resource("aria", view.address) or b"").decode()
    assert years == [["2020"], ["2020"]]
    assert dom.count("<stillweb-frame") == 4
    assert "Two rivers" in dom
    assert "Two rivers" in aria


def test_shadow_roots_are_operated_and_read(site: Recorded) -> None:
    text = site.text("/shadow")
    assert "Notes on mills" in text
    assert "deepest text" in text


def test_what_appears_by_scrolling(site: Recorded) -> None:
    assert "row 199" in site.text("/virtual")
    assert "row 0\n" in site.text("/virtual", 0)
    assert "item 5-9" in site.text("/endless")  # three screens of a page without end, and one more step


def test_a_new_tab_is_followed(site: Recorded) -> None:
    assert "The second page" in site.text("/tabs")


def test_dialogs_are_answered_and_noted(site: Recorded) -> None:
    assert "name: Ada" in site.text("/dialogs")
    assert site.info("/dialogs")["dialogs"] == ["alert: A warning", "confirm: Really?", "prompt: Name?"]


def test_a_banner_is_dismissed_and_said(site: Recorded) -> None:
    assert "cookies" not in site.text("/banner")
    assert site.info("/banner")["dismissed"] == "Reject all"


def test_downloads_are_captures_and_documents(site: Recorded) -> None:
    told = {document.url.rpartition("/")[2]: document for document in site.results["/downloads"].documents}
    assert {name for name in told if "mills" in name} == {"mills.csv", "mills.xlsx?", "mills.pdf"}
    assert told["mills.csv"].size == len(b"mill,year\nPost,1781\n")
    with Snapshot.open(site.path) as snapshot:
        kept = {c.url.removeprefix(site.base): c.mime for c in snapshot.captures() if "/files/" in c.url}
        assert kept["/files/mills.csv"] == "text/csv"
        assert kept["/files/mills.pdf"] == "application/pdf"
        assert "/files/mills.xlsx?" in kept


def test_every_view_is_reached_again(site: Recorded) -> None:
    with Snapshot.open(site.path) as snapshot, Gateway(snapshot) as gateway:
        report = check(snapshot, gateway)
        wrong = [(v.address, v.steps, v.error, v.missed, v.text_changes) for v in report.views if not v.same]
        assert wrong == []
        assert len(report.views) >= 18


def test_exploring_finds_what_is_in_frames_and_shadow_roots(tmp_path: Path) -> None:
    profile = complete(Profile())
    with (
        serve(handle) as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        for page in ("/frames", "/shadow"):
            limits = Limits(12, 1, 60.0, 0.0, 2, False)
            Explorer(recorder, writer, profile, limits=limits).explore(base + page)
    with Snapshot.open(tmp_path / "s") as snapshot:
        ways = [view.steps for view in snapshot.views() if view.steps]
        texts = [(snapshot.resource("text", view.address) or b"").decode() for view in snapshot.views()]
    assert any("Two rivers" in text for text in texts)
    assert any("Notes on mills" in text for text in texts)
    assert any("Wind mills" in text for text in texts)
    assert any("deepest text" in text for text in texts)
    frames = {given.get("frame") for way in ways for given in _given(way)}
    assert {"#one", 'iframe[title="rivers"]', 'iframe[src="\\/outer"] >>> #deep'} <= frames


def _given(way: tuple[Step, ...]) -> list[dict[str, Any]]:
    return [next(iter(step.values())) for step in way]
