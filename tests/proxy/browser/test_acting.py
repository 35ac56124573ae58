"""Steps done on a real page, and what is said when they can't be."""

from collections.abc import Iterator

import pytest

from stillweb.proxy.browser.driver import Driver, next_page_of
from stillweb.proxy.browser.errors import PageFailed
from stillweb.proxy.browser.page_snapshot import PageSnapshot, read_page
from stillweb.proxy.browser.steps import parse_steps
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><title>Acts</title><style>#far{margin-top:3000px}</style>
<div id="cookie-banner">We use cookies. <button onclick="this.parentNode.remove();fetch('/no')">Reject all</button>
<button onclick="fetch('/yes')">Accept all</button></div>
<label>Year <select id=y onchange="out.textContent='year '+y.value"><option>2018</option><option value=x>2019</option></select></label>
<label><input type=checkbox onchange="out.textContent='open '+this.checked"> Only open</label>
<label>Drawn <input type=checkbox style="position:absolute;clip:rect(0,0,0,0);pointer-events:none" onchange="out.textContent='drawn '+this.checked"></label>
<input placeholder=Search onkeydown="if(event.key=='Enter')out.textContent='found '+this.value">
<input type=password value=secret><textarea>old</textarea>
<button onclick="setTimeout(()=>{out.textContent='waited'},2000)">Slow</button>
<button onclick="confirm('Sure?')&&(out.textContent='sure')">Ask</button>
<button onclick="out.textContent='one'">Same</button><button onclick="out.textContent='two'">Same</button>
<a href="/other" target=_blank>Elsewhere</a><a href="/list?p=2" rel=next>Next</a>
<p id=out>start</p><my-part></my-part><iframe srcdoc="<p>inner words</p>"></iframe><p id=far>far</p><p id=lazy></p>
<script>
customElements.define("my-part", class extends HTMLElement {
  constructor() { super(); this.attachShadow({mode: "open"}).innerHTML = "<b>shadow words</b>"; } });
new IntersectionObserver((e) => { if (e[0].isIntersecting) fetch("/lazy").then((r) => r.text()).then((t) => { lazy.textContent = t; }); }).observe(lazy);
</script>"""
# Boxes that only their labels draw, as styled forms have them.
STYLED = """<!DOCTYPE html><title>Styled</title><style>input { display: none }</style><p id=out>start</p>
<input type=checkbox id=a><label for=a>Beside</label> <label>Around <input type=checkbox id=b></label>
<label><a href=/other>The long terms and conditions</a> ok <input type=checkbox id=c></label>
<label style="display: contents"><b>Dissolved</b><input type=checkbox id=d></label>
<input type=radio name=r id=e><label for=e><span style="display: inline-block; width: 20px; height: 20px"></span></label>
<input type=checkbox id=f><label for=f>Twin</label> <input type=checkbox id=g><label for=g>Twin</label>
<iframe srcdoc="<style>input { display: none }</style><input type=checkbox id=i><label for=i>Inside</label>
<script>onchange = (e) => parent.say(e.target)</script>"></iframe><my-part></my-part>
<label><input type=checkbox onclick="return false">Stubborn</label> <input type=checkbox id=k>
<input type=checkbox id=z><p style="height: 1500px"></p><label for=z>Far</label>
<script>
var say = (e) => { out.textContent = `${e.id} ${e.checked}`; };
onchange = (e) => say(e.target);
customElements.define("my-part", class extends HTMLElement { constructor() { super(); this.attachShadow({mode: "open"}).innerHTML =
  "<style>input { display: none }</style><input type=checkbox id=s><label for=s>Shadowed</label>";
  this.shadowRoot.addEventListener("change", (e) => say(e.target)); } });
</script>"""
ODD = """<!DOCTYPE html><title>Odd</title><p hidden>results</p><p id=out>start</p><p>results</p>
<label>Pick <select id=s onchange="out.textContent='picked '+s.value"><option value=a>One<option value=b>Two
   words<option value=c>No&nbsp;break<option value=d label=Seen>unseen<option value=e>One more</select></label>
<input id=cut><p id=half></p><script>const cut = "\\u{1F600}".slice(0, 1); document.title += cut; half.textContent = `half ${cut}`;
document.getElementById("cut").value = cut;</script>"""
asked: list[str] = []


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    asked.append(path)
    html = {"Content-Type": "text/html; charset=utf-8"}
    if path == "/":
        return 200, html, PAGE.encode()
    if path == "/odd":
        return 200, html, ODD.encode()
    if path == "/styled":
        return 200, html, STYLED.encode()
    if path == "/other":
        return 200, html, b"<title>Other</title><p>other page</p>"
    if path.startswith("/list"):
        return 200, html, f"<title>List</title><p>{path}</p>".encode()
    return 200, {"Content-Type": "text/plain"}, f"text of {path}".encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


def after(browser: Browsing, url: str, steps: str) -> tuple[PageSnapshot, Driver]:
    async def go() -> tuple[PageSnapshot, Driver]:
        driver = await browser.driver()
        try:
            await driver.open_start(url)
            for number, step in enumerate(parse_steps(steps), start=1):
                await driver.perform(step, number)
            return await read_page(driver.page), driver
        finally:
            await driver.context.close()

    return browser.run(go())


def said_after(browser: Browsing, url: str, cases: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Do the steps of each case in one tab, on the page as the case before left it, or anew where that left the page.

    Yield steps and words of the cases with the address and text afterwards, or what failed.
    """

    async def go(driver: Driver, steps: str) -> str:
        try:
            for number, step in enumerate(parse_steps(steps), start=1):
                await driver.perform(step, number)
        except PageFailed as failed:
            return f"Failed: {failed}"
        sight = await read_page(driver.page, with_picture=False)
        return f"{sight.url} {sight.text}"

    driver = browser.run(browser.driver())
    at = ""
    for steps, words in cases:
        if at != url:
            browser.run(driver.open_start(url))
        yield steps, words, browser.run(go(driver, steps))
        at = driver.page.url


@pytest.mark.slow
def test_a_step_does_what_it_says(browser: Browsing, site: str) -> None:
    cases = [
        ("- select: {label: Year, option: 2019}", "year x"),
        ("- check: Drawn", "drawn true"),
        ("- select: {label: Year, value: x}", "year x"),
        ("- check: Only open", "open true"),
        ("- check: Only open\n- uncheck: Only open", "open false"),
        ("- fill: {placeholder: Search, value: mill}\n- press: Enter", "found mill"),
        ("- click: {role: button, name: Slow}", "waited"),
        ("- click: Ask", "sure"),
        ("- click: {text: Same, nth: 2}", "two"),
        ("- click: Slow\n- wait: waited", "waited"),
        ("- scroll: {css: '#far', to: view}", "far"),
        ("- click: Elsewhere", "other page"),
        ("- next_page", "/list?p=2"),
        ("- goto: /list?p=7", "/list?p=7"),
    ]
    for steps, words, said in said_after(browser, f"{site}/", cases):
        assert said.startswith(site), steps
        assert words in said, steps


@pytest.mark.slow
def test_what_a_person_sees_is_what_a_step_means(browser: Browsing, site: str) -> None:
    cases = [
        ("- wait: results", "start"),
        ("- wait: {selector: p:has-text('results')}", "start"),
        ("- select: {label: Pick, option: Two words}", "picked b"),
        ("- select: {label: Pick, option: No break}", "picked c"),
        ('- select: {label: Pick, option: "Two\\n   words"}', "picked b"),
        ("- select: {label: Pick, option: Seen}", "picked d"),
        ("- select: {label: Pick, value: e}", "picked e"),
        ("- select: {label: Pick, option: unseen}", "picked d"),
    ]
    for steps, words, said in said_after(browser, f"{site}/odd", cases):
        assert said.startswith(site), steps
        assert words in said, steps


@pytest.mark.slow
def test_a_box_that_is_not_shown_is_worked_by_its_label(browser: Browsing, site: str) -> None:
    cases = [
        ("- check: Beside", "a true"),
        ("- check: Beside\n- uncheck: Beside", "a false"),
        ("- check: Around", "b true"),
        ("- check: {css: '#c'}", "c true"),
        ("- check: Dissolved", "d true"),
        ("- check: {css: '#e'}", "e true"),
        ("- check: {label: Twin, nth: 2}", "g true"),
        ("- check: {label: Inside, frame: iframe}", "i true"),
        ("- check: Shadowed", "s true"),
        ("- check: Far", "z true"),
    ]
    for steps, words, said in said_after(browser, f"{site}/styled", cases):
        assert said.startswith(f"{site}/styled {words}"), steps


def test_what_is_cut_within_a_character_is_read_as_whole_text(browser: Browsing, site: str) -> None:
    sight, _ = after(browser, f"{site}/odd", "")
    assert sight.title == "Odd\ufffd"
    assert "half \ufffd" in sight.text
    assert "half \ufffd" in sight.html
    assert sight.state["fields"][1]["value"] == "\ufffd"


@pytest.mark.slow
def test_the_state_of_a_box_that_only_its_label_draws_is_read(browser: Browsing, site: str) -> None:
    sight, _ = after(browser, f"{site}/styled", "- check: Beside")
    boxes = [(one["label"], one["checked"]) for one in sight.state["fields"]]
    assert boxes[:2] == [("Beside", True), ("Around", False)]


@pytest.mark.slow
def test_what_a_page_shows(browser: Browsing, site: str) -> None:
    sight, driver = after(browser, f"{site}/", "- check: Only open\n- fill: {css: textarea, value: new}")
    assert {"shadow words", "inner words", "text of /lazy"} <= set(sight.text.splitlines())
    assert "text of /yes" not in sight.text
    assert driver.dismissed == "Reject all"
    assert "/no" in asked
    assert "/yes" not in asked
    assert 'checked=""' in sight.html
    assert ">new</textarea>" in sight.html
    assert "shadowrootmode" in sight.html
    assert "secret" not in str(sight.state)
    assert sight.state["fields"][1] == {
        "label": "Only open", "type": "checkbox", "value": "on", "checked": True,
    }  # fmt: skip
    assert "ref=" not in sight.aria
    assert 'checkbox "Only open" [checked]' in sight.aria
    assert sight.png.startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_step_that_fails_says_which_and_why(browser: Browsing, site: str) -> None:
    cases = [
        ("- scroll\n- click: {label: Missing}", "step 2: click: no element with label 'Missing' on http://"),
        ("- click: Askk", "(it has button 'Ask', "),
        ("- select: {label: Yaer, option: 2018}", "(it has combobox 'Year', "),
        (
            "- click: {role: button, name: Same}",
            "step 1: click: role 'button' 'Same' means 2 elements (1: button \"Same\", 2: button \"Same\"): add nth, or name it by css",
        ),
        ("- click: {text: Same, nth: 3}", "there are only 2 elements with text 'Same', not 3"),
        ("- select: {label: Year, option: 1999}", "has no option '1999' (it has '2018', '2019')"),
        ("- select: {placeholder: Search, option: A}", "is not a select element"),
        ("- wait: nowhere", "'nowhere' does not appear within 10 s"),
        ("- click: {css: '((('}", "step 1: click: "),
        ("- goto: /styled\n- check: Stubborn", "step 2: check: label 'Stubborn' did not change when it was"),
        (
            "- goto: /styled\n- check: Twin",
            "label 'Twin' means 2 elements (1: input#f, 2: input#g): add nth, or name it by role",
        ),
    ]
    for steps, words, said in said_after(browser, f"{site}/", cases):
        assert said.startswith("Failed: "), steps
        assert words in said, steps
        assert "\n" not in said, steps


def test_a_page_that_does_not_answer(browser: Browsing) -> None:
    with pytest.raises(PageFailed, match=r"http://127.0.0.1:1/: net::ERR_UNSAFE_PORT$"):
        after(browser, "http://127.0.0.1:1/", "")


LINKS = "<a href='?p=1'>1</a> <a href='?p=2'>2</a> <a href='?p=3'>3</a>"


def shown(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    return 200, {"Content-Type": "text/html"}, b"<title>Mills</title>"


def test_the_page_after_the_one_that_is_shown(browser: Browsing) -> None:
    pages = {
        "<p class=paginator><span class=this-page>1</span> <a href='?p=2'>2</a> <a href='?p=3'>3</a> 45 mills": "?p=2",
        f"<nav aria-label=Pagination>{LINKS}</nav>": None,
        f"<ul class=pagination>{LINKS.replace('>2', ' aria-current=page>2')}</ul>": "?p=3",
        "<ul class=pagination><li><a href='?p=1'>1</a><li class=active><a href='?p=2'>2</a><li><a href='?p=3'>3</a></ul>": "?p=3",
        "<p class=pager><a href='?p=1'>1</a> <b>2</b>": None,  # the last
        f"<p>{LINKS}<b>4</b> <a href='?p=5'>5</a>": None,  # numbers, of whatever
        "<a href='?n'>Next</a><p class=pager><b>1</b> <a href='?p=2'>2</a>": "?n",
    }

    async def find(url: str) -> dict[str, str | None]:
        driver, leads = await browser.driver(), {}
        await driver.open(url)
        for page in pages:
            await driver.page.set_content(page)
            found = await next_page_of(driver.page)
            leads[page] = None if found is None else await found.get_attribute("href")
        return leads

    with serve(shown) as base:
        assert browser.run(find(base)) == pages
