"""The browser tools against Playwright MCP's own words, on a recorded site."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.browser_text import argument_error, code_of, contract, find, js_string
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.toolset import Toolset
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.steps import parse_steps
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.browsed import Browsed
from tests.proxy.late_pages import tell_late
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><title>T</title><h1>Hi</h1><button onclick="alert('boo')">Alert</button>
<input aria-label=Name><select aria-label=Pick onchange="out.textContent=value"><option>A</option><option>B</option></select>
<label><input type=checkbox>Tick</label><a href=/two>two</a><a href=/two target=_blank>newtab</a>
<a href=/unrecorded>away</a><button onclick="console.log('clicked');fetch('/api')">Log</button>
<button onclick="setTimeout(()=>out.textContent='later',2500)">Wait</button><p id=out>para</p>"""


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    html = {"Content-Type": "text/html"}
    if path == "/":
        return 200, html, PAGE.encode()
    if path == "/two":
        return 200, html, b"<title>Two</title><p>second</p>"
    return 404, {"Content-Type": "text/plain"}, b"nope"


@dataclass(kw_only=True)
class Served(Browsed):
    """A recorded site, its gateway and the browser that looks at it."""

    base: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tools")
    authority = Authority.load_or_create(folder / "state")
    profile = complete(Profile())
    steps = parse_steps("- select: {label: Pick, option: B}\n- click: two")
    with (
        serve(handle) as base,
        Writer.open(folder / "snap", profile=profile) as writer,
        Recorder(writer, authority=authority) as recorder,
    ):
        (result,) = Fetcher(recorder, writer, profile).fetch([f"{base}/"], steps)
    assert result.error is None
    with (
        Snapshot.open(folder / "snap") as snapshot,
        Gateway(snapshot, authority=authority) as gateway,
        asyncio.Runner() as runner,
    ):
        browser = SharedBrowser(ca=gateway.ca_path)
        toolset = Toolset(snapshot, ["browser"], gateway=gateway, browser=browser)
        try:
            yield Served(toolset, runner, base=base)
        finally:
            runner.run(toolset.close())
            browser.close()


@pytest.mark.slow
def test_the_list_is_the_contracts(served: Served) -> None:
    specs = served.toolset.session("list").list()
    assert [spec.contract for spec in specs] == ["playwright-mcp@0.0.79"] * 23
    names = [spec.name for spec in specs]
    assert names[:3] == ["browser_close", "browser_resize", "browser_console_messages"]
    assert names[5:7] == ["browser_file_upload", "browser_drop"]
    assert "browser_run_code_unsafe" not in names  # it is for the server's own process
    click = next(spec for spec in specs if spec.name == "browser_click")
    assert click.input_schema["required"] == ["target"]


@pytest.mark.slow
def test_a_page_is_told_in_sections(served: Served) -> None:
    call = served.session()
    shown = call("browser_navigate", url=f"{served.base}/")
    assert not shown.is_error
    head, _, tail = shown.text.partition("### Snapshot\n```yaml\n")
    assert head == (
        f"### Ran Playwright code\n```js\nawait page.goto('{served.base}/');\n```\n"
        f"### Page\n- Page URL: {served.base}/\n- Page Title: T\n"
    )
    assert '  - button "Alert" [ref=e3]\n' in tail
    assert shown.meta["verdict"] == "exact"
    assert shown.meta["captures"][0]["digest"].startswith("sha256:")
    assert shown.meta["state"]["fields"][1] == {"label": "Pick", "type": "select", "value": ["A"]}
    chosen = call("browser_select_option", element="Pick", ref="e5", values=["B"])
    assert "await page.getByLabel('Pick').selectOption('B');" in chosen.text
    assert chosen.meta["state"]["fields"][1]["value"] == ["B"]
    typed = call("browser_type", target="e4", text="a'c")
    assert typed.text == (
        "### Ran Playwright code\n```js\nawait page.getByRole('textbox', { name: 'Name' }).fill('a\\'c');\n```"
    )
    moved = call("browser_click", target="e8")
    assert f"- Page URL: {served.base}/two\n- Page Title: Two" in moved.text
    assert moved.meta["address"] == f"{served.base}/two"
    back = call("browser_navigate_back")
    assert "await page.goBack();" in back.text
    assert call("browser_close").text.startswith("### Result\nNo open tabs.")


@pytest.mark.slow
def test_errors_have_the_tools_own_words(served: Served) -> None:
    call = served.session()
    call("browser_navigate", url=f"{served.base}/")
    stale = call("browser_click", target="e99")
    assert stale.is_error
    assert (
        stale.text
        == "### Error\nError: Ref e99 not found in the current page snapshot. Try capturing new snapshot."
    )
    assert call("browser_click").text == (
        '### Error\nInvalid arguments for tool "browser_click":\n'
        "✖ Invalid input: expected string, received undefined\n  → at target"
    )
    clicked = call("browser_click", target="h1", button="right", modifiers=["Shift", "Control", "Alt"])
    assert ".click({\n  button: 'right',\n  modifiers: ['Alt', 'ControlOrMeta', 'Shift']\n});" in clicked.text
    assert call("browser_snapshot", target="css=nope").text.endswith(
        '"css=nope" does not match any elements.'
    )
    held = call("browser_click", target="e3")
    assert '### Modal state\n- ["alert" dialog with message "boo"]: can be handled by' in held.text
    assert 'Tool "browser_snapshot" does not handle the modal state.' in call("browser_snapshot").text
    assert not call("browser_handle_dialog", accept=True).is_error
    assert "only be used when there is related modal state" in call("browser_handle_dialog", accept=True).text


@pytest.mark.slow
def test_what_was_not_recorded_fails_as_the_network_does(served: Served) -> None:
    call = served.session()
    url = f"{served.base}/elsewhere?x=1"
    missed = call("browser_navigate", url=url)
    assert missed.is_error
    assert missed.text.startswith(
        f"### Error\nError: browserBackend.callTool: net::ERR_INTERNET_DISCONNECTED at {url}\nCall log:"
    )
    assert missed.meta["verdict"] == "miss"
    assert missed.meta["missed"] == [url]
    call("browser_navigate", url=f"{served.base}/")
    clicked = call("browser_click", target="text=away")
    assert clicked.is_error
    assert "ERR_INTERNET_DISCONNECTED" in clicked.text
    call("browser_navigate", url=f"{served.base}/")
    logged = call("browser_click", target="role=button[name='Log']")
    assert not logged.is_error
    assert f"### Events\n- Failed to load: {served.base}/api (fetch)" in logged.text
    assert logged.meta["missed"] == [f"{served.base}/api"]
    listed = call("browser_network_requests")
    assert f"2. [GET] {served.base}/api => [504]" in listed.text
    assert "Note: 1 static request not shown" in listed.text
    told = call("browser_console_messages")
    assert f"[LOG] clicked @ {served.base}/:" in told.text


@pytest.mark.slow
def test_a_new_tab_is_told_of_by_the_click_that_opened_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_late(monkeypatch)
    call = served.session()
    call("browser_navigate", url=f"{served.base}/")
    told = call("browser_click", target="text=newtab").text
    assert f"- 1: [Two]({served.base}/two)" in told
    told = call("browser_evaluate", function="() => { open('/two'); }").text
    assert f"- 2: [Two]({served.base}/two)" in told


@pytest.mark.slow
def test_time_tabs_and_pictures(served: Served) -> None:
    call = served.session()
    call("browser_navigate", url=f"{served.base}/")
    call("browser_click", target="role=button[name='Wait']")
    assert "Waited for later" in call("browser_wait_for", text="later").text
    assert call("browser_evaluate", function="async () => { await new Promise(r => setTimeout(r, 9000)); return {a: 1}; }"
                ).text.startswith('### Result\n{\n  "a": 1\n}')  # fmt: skip
    assert call("browser_evaluate", function="() => { throw new Error('x') }").text == "### Error\nError: x"
    assert 'Found 1 match for "later":' in call("browser_find", text="later").text
    opened = call("browser_click", target="text=newtab")
    assert f"### Open tabs\n- 0: (current) [T]({served.base}/)\n- 1: [Two]({served.base}/two)" in opened.text
    assert "- 1: (current) [Two]" in call("browser_tabs", action="select", index=1).text
    picture = call("browser_take_screenshot")
    assert picture.content[1]["mimeType"] == "image/png"
    assert picture.content == served_again(served, picture)


def served_again(served: Served, first: ToolResult) -> list[dict[str, Any]]:
    call = served.session()
    call("browser_navigate", url=f"{served.base}/two")
    return call("browser_take_screenshot").content


def test_a_view_is_reached_by_its_address(served: Served) -> None:
    address = next(view.address for view in served.toolset.snapshot.views() if len(view.steps) == 1)
    call = served.session()
    shown = call("browser_navigate", url=address)
    assert not shown.is_error
    assert "paragraph [ref=" in shown.text
    assert ": B" in shown.text
    assert shown.meta["address"] == address


def test_sessions_know_nothing_of_each_other(served: Served) -> None:
    one, other = served.session(), served.session()
    one("browser_navigate", url=f"{served.base}/")
    one("browser_evaluate", function="() => { localStorage.x = 1; document.cookie = 'a=b'; }")
    other("browser_navigate", url=f"{served.base}/")
    assert (
        '### Result\n[\n  null,\n  ""\n]'
        in other("browser_evaluate", function="() => [localStorage.x ?? null, document.cookie]").text
    )


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        ('internal:role=button[name="Go"i]', "getByRole('button', { name: 'Go' })"),
        ('internal:role=button[name="It\'s"s] >> nth=1', "getByRole('button', { name: 'It\\'s', exact: true }).nth(1)"),
        ('internal:text="a >> b"i >> nth=0', "getByText('a >> b').first()"),
        ('internal:attr=[placeholder="Find"i]', "getByPlaceholder('Find')"),
        ('internal:label="Year"s', "getByLabel('Year', { exact: true })"),
        ('iframe >> internal:control=enter-frame >> #x', "locator('iframe').contentFrame().locator('#x')"),
        ('internal:role=listitem >> internal:has-text="x"i', "getByRole('listitem').filter({ hasText: 'x' })"),
    ],
)  # fmt: skip
def test_code_is_written_as_the_real_tool_writes_it(selector: str, code: str) -> None:
    assert code_of(selector) == code


@pytest.mark.parametrize("prefix", ["file:///", "FILE:"])
def test_files_of_this_machine_are_no_pages(served: Served, tmp_path: Path, prefix: str) -> None:
    (tmp_path / "page.html").write_text("<title>Not recorded</title>")
    call = served.session()
    url = f"{prefix}{tmp_path}/page.html"
    words = f'### Error\nError: Access to "file:" protocol is blocked. Attempted URL: "{url}"'
    assert call("browser_navigate", url=url).text == words
    assert call("browser_tabs", action="new", url=url).text == words
    assert "Not recorded" not in call("browser_tabs", action="list").text


def test_small_words() -> None:
    tabs = next(t["inputSchema"] for t in contract()["tools"] if t["name"] == "browser_tabs")
    for given in ({}, {"action": "x"}, {"action": 5}):
        told = argument_error("browser_tabs", given, tabs)
        assert told is not None
        assert told.endswith('Invalid option: expected one of "list"|"new"|"close"|"select"\n  → at action')
    resize = next(t["inputSchema"] for t in contract()["tools"] if t["name"] == "browser_resize")
    told = argument_error("browser_resize", {"height": "x"}, resize)
    assert told is not None
    assert told.index("→ at width") < told.index("→ at height")
    assert js_string("a\"b'c\n") == "'a\"b\\'c\\n'"
    assert find("- a:\n  - b\n  - c", None, "/B/i").startswith("Found 1 match for /B/i:\n\n- a:")
    assert find("- a", "z", None) == 'No matches found for "z".'
    schema = next(t["inputSchema"] for t in contract()["tools"] if t["name"] == "browser_fill_form")
    problem = argument_error(
        "browser_fill_form", {"fields": [{"target": "e1", "name": "n", "type": "x", "value": 1}]}, schema
    )
    assert problem is not None
    assert "→ at fields[0].type" in problem
    assert "expected string, received number\n  → at fields[0].value" in problem
    path = Path(__file__).parents[3] / "harness/tools/contracts/playwright-mcp.json"
    assert "0.0.79" in json.loads(path.read_text(encoding="utf-8"))["source"]


@pytest.mark.slow
def test_a_browser_that_was_opened_ahead_says_the_same(served: Served) -> None:
    async def go(ahead: bool) -> list[dict[str, Any]]:
        session = served.toolset.session(f"ahead-{ahead}")
        if ahead:
            session.prepare()
            session.prepare()
            await asyncio.gather(*session._preparing)
            (own,) = session._opened.values()
            assert len(own.tabs) == 1
        url = {"url": f"{served.base}/"}
        calls = [await session.call("browser_navigate", url), await session.call("browser_snapshot", {})]
        await session.close()
        return [{"content": one.content, **one.meta} for one in calls]

    assert served.runner.run(go(True)) == served.runner.run(go(False))


def test_a_session_prepared_and_never_used_leaves_nothing(served: Served) -> None:
    async def go() -> Any:
        session = served.toolset.session("unused")
        session.prepare()
        await asyncio.sleep(0)  # it has begun
        (own,) = session._opened.values()
        await session.close()
        return own

    assert served.runner.run(go()).context is None
