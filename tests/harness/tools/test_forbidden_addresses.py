"""Addresses that show this machine, opened by every means that an agent, a page or a snapshot has."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.harness.tools import browser_session
from stillweb.proxy.browser.errors import forbidden_scheme
from stillweb.snapshots.view import View, view_address
from tests.harness.tools.browsed import Browsed, Call, browsed
from tests.harness.tools.frozen import Recorder

SITE = "https://ways.test/"
PLAIN = "<!DOCTYPE html><title>Ways</title><h1>Frozen</h1>"
CANARY = "canary of a file"
FORBIDDEN = (
    "chrome://version/", "CHROME://version", "chrome:version", "chrome-untrusted://print/", "chrome-extension://abc/x.html",
    "devtools://devtools/bundled/inspector.html", f"view-source:{SITE}", "view-source:chrome://version/", "about:version",
    "about://version", "about:blankets", "filesystem:https://ways.test/temporary/x", "FILE://{file}", "file:{file}",
    "view-source:file://{file}", "chrome-native://x", "ftp://ways.test/", "javascript:alert(1)", "mailto:a@ways.test",
)  # fmt: skip
VIEWED = ("chrome://version/", "file://{file}")
# Each opens `url` from within a page.
WAYS = (
    "location = url",
    "location.replace(url)",
    "window.open(url)",
    "document.body.innerHTML = `<a href='${url}'>x</a>`, document.querySelector('a').click()",
    "document.body.innerHTML = `<a target=_blank href='${url}'>x</a>`, document.querySelector('a').click()",
    "document.body.innerHTML = `<iframe src='${url}'></iframe>`",
    "document.body.innerHTML = `<object data='${url}'></object><embed src='${url}'>`",
    "document.body.innerHTML = `<iframe srcdoc=\"<a target=_top href='${url}'>x</a><script>document.links[0].click()</script>\"></iframe>`",
    "document.body.innerHTML = `<form action='${url}'></form>`, document.forms[0].submit()",
    "document.head.innerHTML = `<meta http-equiv=refresh content='0;url=${url}'>`",
    "location = URL.createObjectURL(new Blob([`<iframe src='${url}'></iframe><script>location = '${url}'</script>`], {type: 'text/html'}))",
    "void fetch(url).then((r) => r.text()).then((t) => { document.body.textContent = t; }, () => 0)",
    "void (() => { try { new Worker(url); new SharedWorker(url); } catch {} })()",
    "void import(url).catch(() => 0)",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Browsed]:
    def make(site: Recorder) -> None:
        site.add(SITE, PLAIN)
        for number, url in enumerate(addresses(folder)):
            site.add(f"{SITE}to/{number}", status=302, headers=(("Location", url),))
            site.add(f"{SITE}meta/{number}", f'{PLAIN}<meta http-equiv=refresh content="0;url={url}">')
        for url in VIEWED:
            steps = ({"goto": {"url": url.format(file=folder / "secret.html")}},)
            site.writer.view(
                View(view_address(SITE, steps), SITE, SITE, "Ways", steps, timestamp="20250101000000"), {}
            )

    with browsed(tmp_path_factory.mktemp("ways") / "s", make, ["playwright-mcp"]) as found:
        yield found


@pytest.fixture(scope="module")
def call(served: Browsed) -> Call:
    return served.session()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine")
    (path / "secret.html").write_text(f"<title>{CANARY}</title>{CANARY}")
    return path


def addresses(folder: Path) -> list[str]:
    return [url.format(file=folder / "secret.html") for url in FORBIDDEN]


def shown(call: Call) -> str:
    return call("browser_tabs", action="list").text + call("browser_snapshot").text


def check(text: str, url: str) -> None:
    """No tab shows the address, and nothing is told of the machine or of the file."""
    for leak in (CANARY, "--proxy-server", "/usr/", "Command Line", f"Page URL: {url}", f"]({url})"):
        assert leak not in text


@pytest.mark.slow
def test_an_agent_is_refused_in_the_tools_words(call: Call, folder: Path) -> None:
    for url in addresses(folder):
        scheme = url.partition(":")[0].lower()
        words = f'### Error\nError: Access to "{scheme}:" protocol is blocked. Attempted URL: "{url}"'
        assert call("browser_navigate", url=url).text == words
    for url in (addresses(folder)[0], addresses(folder)[12]):  # by the same rule
        assert "protocol is blocked" in call("browser_tabs", action="new", url=url).text
        call("browser_tabs", action="close")
    assert "Frozen" in call("browser_navigate", url=SITE).text  # what is asked for next is not harmed


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_page_does_not_get_there(
    call: Call, folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        browser_session, "GIVEN_MS", 1_500
    )  # Playwright waits for the frame that Chromium refused
    for url in (f"file://{folder}/secret.html", "about:version" if "open" in way else "chrome://version/"):
        call("browser_navigate", url=SITE)
        told = call("browser_evaluate", function=f"() => {{ const url = {json.dumps(url)}; {way}; }}").text
        check(told + shown(call), url)


@pytest.mark.slow
def test_no_answer_of_a_site_leads_there(call: Call, folder: Path) -> None:
    for number, url in [*enumerate(addresses(folder))][:13:2]:
        for way in ("to", "meta"):
            check(call("browser_navigate", url=f"{SITE}{way}/{number}").text, url)
        check(call("browser_tabs", action="list").text, url)


@pytest.mark.slow
def test_no_step_of_a_view_leads_there(served: Browsed, call: Call) -> None:
    snapshot = served.toolset.snapshot
    views = [view for view in snapshot.views() if view.steps]
    assert len(views) == len(VIEWED)
    for view in views:
        url = view.steps[0]["goto"]["url"]
        told = call("browser_navigate", url=view.address)
        assert told.is_error
        assert f"pages of the scheme {url.partition(':')[0]}: are never opened" in told.text
        check(shown(call), url)


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("https://a.test/", ""), ("HTTP://a.test/", ""), ("data:text/html,x", ""), ("blob:https://a.test/1", ""), ("about:blank", ""),
        ("about:blank#blocked", ""), ("about:srcdoc", ""), ("ABOUT:BLANK?x", ""), ("", ""), ("a.test/x:y", ""),
        (" \tchrome://version", "chrome"), ("chr\nome://version", "chrome"), ("\x00file:///etc/hosts", "file"), ("about:blank.", "about"),
    ],
)  # fmt: skip
def test_the_scheme_is_read_as_browsers_read_it(url: str, scheme: str) -> None:
    assert forbidden_scheme(url) == scheme
