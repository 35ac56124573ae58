"""Tabs that a page opens: told of by the step that opened them, however late the browser tells, and never waited for in vain."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser import settle
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.settle import SettleTimeouts
from tests.proxy.browsing import Browsing
from tests.proxy.late_pages import hearing, tell_late
from tests.proxy.sites import Answer, serve
from tests.support.waiting import STARTS

PAGE = """<!DOCTYPE html><title>Opener</title><p id=out>start</p><iframe name=inner srcdoc="<p>inner</p>"></iframe>
<iframe src=/within></iframe><base target=_self>
<a id=linked href=/two target=_blank>x</a><a id=plain href=/two>x</a><a id=into href=/two target=inner>x</a>
<a id=named href=/two target=named>x</a><a id=stopped href=/two target=_blank onclick="return false">x</a>
<form id=form action=/two target=_blank><input name=q><button id=sent>x</button></form>
<form action=/two><button id=own formtarget=_blank name=q>x</button></form>
<my-form></my-form>
<script>
customElements.define("my-form", class extends HTMLElement { constructor() { super();
  this.attachShadow({mode: "open"}).innerHTML = "<form action=/two target=_blank><button id=shadowed>x</button></form>"; } });
const say = (text) => { out.textContent = text; };
const button = (id, does) => { const b = document.createElement("button"); b.id = id; b.textContent = "x"; b.onclick = does; document.body.append(b); };
button("script", () => open("/two"));
button("later", () => setTimeout(() => open("/two", "_blank", "width=300"), 700));
button("alone", () => open("/two", "_blank", "noopener"));
button("twice", () => { open("/two"); open("/two"); });
button("submitted", () => form.submit());
button("made", () => Object.assign(document.createElement("a"), { href: "/two", target: "_blank" }).click());
button("framed", () => frames[1].later());
button("again", () => { open("/two", "named"); say("opened"); });
button("shut", () => { const w = open("/two"); w.close(); say(`closed ${w.closed}`); });
button("none", () => { open("mailto:a@example.org"); frames[0].frameElement.sandbox = "allow-scripts"; open("/two", "inner"); say("none"); });
button("signs", () => { open("/signs", "_blank", "width=300"); onmessage = ({ data }) => setTimeout(() => say(data), 500); });
button("clocked", () => { const began = Date.now(); setTimeout(() => { const w = open("/two"); const at = Date.now();
  setTimeout(() => say(`${at - began} ${Date.now() - began} ${w.document.title}`), 1); }, 5); });
</script>"""
WITHIN = "<script>var later = () => setTimeout(() => open('/two'), 50)</script>"
BOXED = """<!DOCTYPE html><title>Boxed</title><p id=out></p><iframe sandbox="allow-scripts" srcdoc="<script>
onmessage = () => parent.postMessage(String(open('/two')) + open('/two', '_blank', 'noopener'), '*')</script>"></iframe>
<button id=boxed onclick="frames[0].postMessage(1, '*')">x</button><script>onmessage = (e) => { out.textContent = e.data; }</script>"""
SIGNS = """<!DOCTYPE html><title>Signs</title><p>One moment<script>
setTimeout(() => { opener.postMessage("signed in", "*"); setTimeout(close, 50); }, 200)</script>"""
PAGES = {
    "/": PAGE,
    "/signs": SIGNS,
    "/within": WITHIN,
    "/boxed": BOXED,
    "/two": "<!DOCTYPE html><title>Two</title><p>two",
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = PAGES.get(path.partition("?")[0])
    return 404 if page is None else 200, {"Content-Type": "text/html"}, (page or "").encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_late(monkeypatch)


async def opened(browser: Browsing, url: str, step: Any) -> tuple[str, str, int]:
    """The title of the page acted on after the step, what the first page says, and how many pages there are."""
    driver: Driver = await browser.driver()
    try:
        await driver.open(url)
        first = driver.page
        await driver.perform(step)
        return await driver.page.title(), await first.inner_text("#out"), len(driver.context.pages)
    finally:
        await driver.context.close()


def click(name: str) -> dict[str, Any]:
    return {"click": {"css": f"#{name}"}}


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_a_tab_is_told_of_by_the_step_that_opened_it(browser: Browsing, site: str) -> None:
    names = [
        "script",
        "later",
        "alone",
        "linked",
        "named",
        "sent",
        "own",
        "shadowed",
        "submitted",
        "made",
        "framed",
    ]

    async def go() -> dict[str, tuple[str, str, int]]:
        driver, told = await browser.driver(), {}
        await driver.open(f"{site}/")
        first = driver.page
        for name in names:
            driver._page = first
            await driver.perform(click(name))
            tabs = [page for page in driver.context.pages if page is not first]
            told[name] = (await driver.page.title(), await first.inner_text("#out"), len(tabs))
            for tab in tabs:
                await tab.close()
        return told

    assert browser.run(go()) == dict.fromkeys(names, ("Two", "start", 1))


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_each_of_two_tabs_is_waited_for(browser: Browsing, site: str) -> None:
    assert browser.run(opened(browser, f"{site}/", click("twice"))) == ("Two", "start", 3)


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_the_page_s_time_stands_until_its_tab_is_there(browser: Browsing, site: str) -> None:
    assert browser.run(opened(browser, f"{site}/", click("clocked")))[1] == "5 6 Two"


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_a_tab_that_closes_itself_leads_back_to_the_page_that_it_told(browser: Browsing, site: str) -> None:
    assert browser.run(opened(browser, f"{site}/", click("signs"))) == ("Opener", "signed in", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_a_key_opens_a_tab_as_a_click_does(browser: Browsing, site: str) -> None:
    step = {"press": {"key": "Control+Enter", "css": "#plain"}}
    assert browser.run(opened(browser, f"{site}/", step)) == ("Two", "start", 2)


WAITING = SettleTimeouts(real=STARTS)  # as long as a tab is waited for in vain that never comes


@pytest.mark.slow
def test_what_opens_no_tab_is_not_waited_for(
    browser: Browsing, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "TAB_LOOKS", 10**9)
    began = time.monotonic()

    async def go(path: str, *names: str) -> list[tuple[str, str]]:
        driver, told = await browser.driver(WAITING), []
        await driver.open(f"{site}{path}")
        for name in names:
            await driver.perform(click(name))
            told.append((await driver.page.title(), await driver.page.inner_text("#out")))
        return told

    said = ["start", "start", "closed true", "none"]
    assert browser.run(go("/", "into", "stopped", "shut", "none")) == [("Opener", one) for one in said]
    assert browser.run(go("/boxed", "boxed")) == [("Boxed", "nullnull")]
    assert time.monotonic() - began < STARTS, "it was waited for"


@pytest.mark.slow
def test_a_window_that_is_used_again_is_not_waited_for(
    browser: Browsing, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "TAB_LOOKS", 10**9)

    async def go() -> tuple[int, bool]:
        driver = await browser.driver(WAITING)
        try:
            await driver.open(f"{site}/")
            first, began = driver.page, time.monotonic()
            for name in ("again", "again", "named"):
                driver._page = first
                await driver.perform(click(name))
            return len(driver.context.pages), time.monotonic() - began < STARTS
        finally:
            await driver.context.close()

    assert browser.run(go()) == (2, True)


@pytest.mark.slow
def test_a_tab_that_nobody_tells_of_holds_nothing_for_ever(
    browser: Browsing, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "TAB_LOOKS", 3)
    hearing(monkeypatch, lambda told, page: None)
    assert browser.run(opened(browser, f"{site}/", click("clocked")))[1].startswith("5 6")
