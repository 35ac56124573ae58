"""The browser tools on what pages really contain: frames, shadow roots, tabs, streams, and what is missing of them."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.toolset import Toolset
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.steps import Flow, canonical, parse_steps, to_yaml
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.browsed import browsed
from tests.proxy.kinds_of_pages import handle
from tests.proxy.sites import Answer, serve
from tests.proxy.streaming import streaming_site
from tests.support.waiting import HANG

LIST = """<!DOCTYPE html><title>List</title><table><tr><th aria-sort=descending>Year</tr><tr><td>1781</tr></table>
<label>Region <select name=region><option>All</option><option>North</option></select></label>
<label><input type=checkbox name=open value=1>Open</label>
<nav><a href="/list?page=2#top" aria-current=page>2</a></nav><button aria-pressed=true>Wind</button>
<link rel=stylesheet href=/gone.css><img src=/gone.png alt=gone><script>navigator.serviceWorker?.register("/sw.js").catch(() => 0)</script>"""


PICTURE = """<svg xmlns="http://www.w3.org/2000/svg"><title>Mill</title><a href="/list?page=2&amp;_sort=year#top"><text y="20">It turns</text></a></svg>"""
ROOTLESS = "<p>here<script>document.documentElement.remove()</script>"


def site(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path.startswith("/list"):
        return 200, {"Content-Type": "text/html"}, LIST.encode()
    if path.startswith("/picture"):
        return 200, {"Content-Type": "image/svg+xml"}, PICTURE.encode()
    if path.startswith("/rootless"):
        return 200, {"Content-Type": "text/html"}, ROOTLESS.encode()
    return handle(method, path, body, headers)


@dataclass
class Served:
    base: str
    live: str
    toolset: Toolset
    runner: asyncio.Runner
    notes: list[str]
    sessions: int = 0

    def session(self) -> Callable[..., ToolResult]:
        self.sessions += 1
        session = self.toolset.session(f"s{self.sessions}")
        return lambda name, **given: self.runner.run(session.call(name, given))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("pages") / "s"
    profile = complete(Profile())
    with (
        serve(site) as base,
        streaming_site() as live,
        Writer.open(path, profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        frames = canonical([{"select": {"label": "Year", "option": "2020", "frame": "#one"}}])
        flows = [Flow(f"{base}/frames", frames), Flow(f"{base}/shadow", ()), Flow(f"{base}/list?page=2&_sort=year#top", ()),
                 Flow(f"{live}/", ()), Flow(f"{base}/picture", ())]  # fmt: skip
        results = Fetcher(recorder, writer, profile).fetch([], flows)
        assert [result.error for result in results] == [None] * len(flows)
        with httpx.Client(proxy=recorder.proxy_url()) as client:
            client.get(f"{base}/rootless")
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway, asyncio.Runner() as runner:
        browser = SharedBrowser(ca=gateway.ca_path)
        toolset = Toolset(snapshot, ["browser"], gateway=gateway, browser=browser)
        try:
            yield Served(base, live, toolset, runner, results[2].notes)
        finally:
            runner.run(toolset.close())
            browser.close()


def reference(text: str, line: str) -> str:
    found = re.search(rf"{re.escape(line)}.*?\[ref=(\w+)\]", text)
    assert found is not None, text
    return found[1]


def field(meta: dict[str, Any], name: str) -> list[Any]:
    return [one["value"] for one in meta["state"]["fields"] if one.get("name") == name]


@pytest.mark.slow
def test_references_in_frames_are_operated(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/frames")
    button = reference(shown.text, 'button "Show rivers"')
    assert re.fullmatch(r"f\d+e\d+", button)
    clicked = call("browser_click", target=button)
    assert "Two rivers" in clicked.text
    assert "contentFrame().getByRole('button', { name: 'Show rivers' }).click()" in clicked.text
    chosen = call("browser_select_option", target=reference(shown.text, 'combobox "Year"'), values=["2020"])
    assert field(chosen.meta, "year") == [["2020"], ["2019"]]  # of both frames


@pytest.mark.slow
def test_shadow_roots_are_as_if_they_were_not_there(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/shadow")
    clicked = call("browser_click", target=reference(shown.text, 'button "Deeper"'))
    assert "deepest text" in clicked.text


@pytest.mark.slow
def test_the_state_after_each_call(served: Served) -> None:
    call = served.session()
    state = call("browser_navigate", url=f"{served.base}/list?page=2&_sort=year#top").meta["state"]
    assert state["url"] == f"{served.base}/list?page=2&_sort=year#top"
    assert state["fragment"] == "#top"
    assert (state["page"], state["sort"], state["chosen"]) == ("2", ["Year descending"], ["Wind"])
    changed = call("browser_select_option", target="select", values=["North"])
    ticked = call("browser_click", target="input[name=open]")
    assert field(changed.meta, "region") == [["North"]]
    assert [one["checked"] for one in ticked.meta["state"]["fields"] if one["type"] == "checkbox"] == [True]


def test_missing_parts_that_matter_are_told(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/list?page=2&_sort=year#top")
    assert not shown.is_error  # recorded with their 404s
    assert "Failed to load" not in shown.text
    assert served.notes == ["asks for a service worker: none is run, while recording and in replay"]
    lost = call("browser_evaluate", function="() => fetch('/never').then((r) => r.status)")
    assert lost.meta["missed"] == [f"{served.base}/never"]
    assert f"### Events\n- Failed to load: {served.base}/never (fetch)" in lost.text


def test_a_stream_goes_on_as_recorded_and_strays_loudly(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.live}/")
    assert "the list: a, b" in shown.text
    assert "7 third" in shown.text
    asked = call("browser_click", target="text=More")  # nobody pressed it while recording
    assert f"- Failed to load: ws{served.live[4:]}/talk?room=1 (websocket)" in asked.text
    assert asked.meta["missed"] == [f"ws{served.live[4:]}/talk?room=1"]


@pytest.mark.slow
def test_a_views_steps_are_a_steps_file_that_leads_there_again(served: Served) -> None:
    (view,) = [view for view in served.toolset.snapshot.views() if view.steps]
    assert parse_steps(to_yaml(view.steps)) == view.steps
    call = served.session()
    shown = call("browser_navigate", url=view.address)
    assert not shown.is_error
    assert field(shown.meta, "year")[0] == ["2020"]
    assert shown.meta["address"] == view.address


def test_services_answer_pages_at_their_real_addresses(served: Served) -> None:
    given = served.toolset
    toolset = Toolset(given.snapshot, ["browser"], browser=given.options["browser"])  # a gateway of its own
    try:
        page = f"https://r.jina.ai/{served.base}/list?page=2&_sort=year"
        shown = served.runner.run(toolset.session("reader").call("browser_navigate", {"url": page}))
        assert "Title: List" in shown.text
        assert not shown.is_error
    finally:
        served.runner.run(toolset.close())


@pytest.mark.slow
def test_a_document_without_a_body_is_shown_from_its_root(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/picture")
    assert not shown.is_error
    link = reference(shown.text, 'link "It turns"')
    assert 'img "Mill"' in call("browser_snapshot").text
    assert 'link "It turns"' in call("browser_find", text="turns").text
    clicked = call("browser_click", target=link)
    assert f"{served.base}/list" in clicked.text
    assert 'combobox "Region"' in clicked.text


def test_a_document_without_a_root_shows_nothing(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/rootless")
    assert not shown.is_error
    assert shown.text.endswith("### Snapshot\n```yaml\n\n```")
    assert "No matches" in call("browser_find", text="here").text


SITE = "https://late.test/"
PAGE = """<title>Late</title><p>hello</p>
<script>setTimeout(() => { alert("boo"); document.body.append("now"); }, 6000)</script>"""
BOO = '### Modal state\n- ["alert" dialog with message "boo"]: can be handled by browser_handle_dialog'


@pytest.mark.slow
def test_a_dialog_ends_what_waits_for_the_page(tmp_path: Path) -> None:
    with browsed(tmp_path / "s", lambda site: site.add(SITE, PAGE), ["playwright-mcp"]) as served:
        session = served.toolset.session("s")

        def call(name: str, **given: object) -> ToolResult:
            return served.runner.run(asyncio.wait_for(session.call(name, given), HANG))

        call("browser_navigate", url=SITE)
        waits = "() => new Promise(done => setTimeout(() => { alert('hm'); done(1) }, 300))"
        evaluated = call("browser_evaluate", function=waits)
        assert not evaluated.is_error
        assert '["alert" dialog with message "hm"]' in evaluated.text
        assert not call("browser_handle_dialog", accept=True).is_error
        waited = call("browser_wait_for", text="now")
        assert waited.is_error
        assert waited.text == (
            f"### Error\nTimeoutError: browserBackend.callTool: Timeout 5000ms exceeded.\n{BOO}"
        )
        assert not call("browser_handle_dialog", accept=True).is_error
        assert "Waited for now" in call("browser_wait_for", text="now").text
