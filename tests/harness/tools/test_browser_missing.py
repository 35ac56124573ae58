"""Pages that lack something of theirs: none of them may look whole, whoever asked for what is missing."""

from collections.abc import Iterator

import pytest

from tests.harness.tools.browsed import Browsed, Call, browsed
from tests.harness.tools.frozen import Recorder

SITE = "https://holes.test"
OUT = "<p id=o>rows: none</p>"


def worker(make: str) -> str:
    return f"{OUT}<script>new Worker({make}).onmessage = (e) => {{ o.textContent = e.data; }}</script>"


# page -> its markup, and the kind as which /lost/<page> is told; None for what nobody needs to hear of
PAGES: dict[str, tuple[str, str | None]] = {
    "xhr": (f"{OUT}<script>const x = new XMLHttpRequest(); x.open('GET', '/lost/xhr'); x.send()</script>", "xhr"),
    "fetch": (f"{OUT}<script>fetch('/lost/fetch').then((r) => r.ok)</script>", "fetch"),
    "frame": ("<iframe src=/lost/frame></iframe>", "document"),
    "in-frame": ("<iframe src=/inner.html></iframe>", "fetch"),
    "object": ("<object data=/lost/object type=text/html>else</object>", "document"),
    "script": (f"{OUT}<script src=/lost/script></script>", "script"),
    "module": (f"{OUT}<script type=module src=/lost/module></script>", "script"),
    "import": (f"{OUT}<script type=module src=/has.mjs></script>", "script"),
    "dynamic": (f"{OUT}<script>import('/lost/dynamic').catch(() => 0)</script>", "script"),
    "worker": (worker("'/lost/worker'"), "script"),
    "in-worker": (worker("'/worker.js'"), "fetch"),
    "worker-part": (worker("'/parts.js'"), "other"),
    "in-blob": (
        worker(f'URL.createObjectURL(new Blob(["fetch(\'{SITE}/lost/in-blob\').then(() => postMessage(1))"]))'),
        "fetch",
    ),
    "in-shared": (f"{OUT}<script>new SharedWorker('/shared.js').port.start()</script>", "fetch"),
    "style": ("<link rel=stylesheet href=/lost/style>", "stylesheet"),
    "style-part": ("<link rel=stylesheet href=/has.css>", "stylesheet"),
    "image": ("<img src=/lost/image alt=chart>", "image"),
    "background": ("<div style='background: url(/lost/background); height: 9px'></div>", "image"),
    "font": ("<style>@font-face{font-family:L;src:url(/lost/font)}p{font-family:L}</style><p>text</p>", "font"),
    "stream": ("<script>new EventSource('/lost/stream')</script>", "fetch"),
    "beacon": ("<script>navigator.sendBeacon('/lost/beacon', 'x')</script>", None),
    "prefetch": ("<link rel=prefetch href=/lost/prefetch>", None),
}  # fmt: skip


def fill(site: Recorder) -> None:
    for name, (html, _) in PAGES.items():
        site.add(f"{SITE}/{name}", f"<!DOCTYPE html><title>{name}</title><h1>Whole?</h1>{html}")
    script = "text/javascript"
    site.add(f"{SITE}/inner.html", f"{OUT}<script>fetch('/lost/in-frame').then((r) => r.ok)</script>")
    site.add(f"{SITE}/has.mjs", "import '/lost/import';", script)
    site.add(f"{SITE}/worker.js", "fetch('/lost/in-worker').then((r) => postMessage(r.ok))", script)
    site.add(
        f"{SITE}/parts.js", "try { importScripts('/lost/worker-part'); } catch { postMessage(1); }", script
    )
    site.add(f"{SITE}/shared.js", "onconnect = (e) => fetch('/lost/in-shared').then((r) => e.ports[0].postMessage(r.ok))", script)  # fmt: skip
    site.add(f"{SITE}/has.css", "@import '/lost/style-part';", "text/css")
    site.add(f"{SITE}/foreign", "<script>fetch('https://api.test/lost?k=1').catch(() => 0)</script>")
    asked = "fetch('https://api.test/posted', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})"
    site.add(f"{SITE}/preflight", f"<script>{asked}.catch(() => 0)</script>")
    site.add(f"{SITE}/later", "<button onclick=\"fetch('/lost/later').then((r) => r.ok)\">Go</button>")
    site.add(f"{SITE}/list?sort=a&sort=b", "<title>List</title><p>a, then b")
    site.add(f"{SITE}/many", "".join(f"<img src=/lost/{n:02}>" for n in range(30)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(tmp_path_factory.mktemp("holes") / "s", fill, ["playwright-mcp"]) as found:
        yield found


@pytest.fixture(scope="module")
def call(served: Browsed) -> Call:
    return served.session()


def events(text: str) -> list[str]:
    return text.partition("\n### Events\n")[2].splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_lacks_something_says_so(call: Call, name: str) -> None:
    kind = PAGES[name][1]
    shown = call("browser_navigate", url=f"{SITE}/{name}")
    assert not shown.is_error
    assert shown.meta["missed"] == [f"{SITE}/lost/{name}"]
    assert events(shown.text) == ([] if kind is None else [f"- Failed to load: {SITE}/lost/{name} ({kind})"])
    assert "Failed to load" not in call("browser_snapshot").text  # told once


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lost"), [("foreign", "https://api.test/lost?k=1"), ("preflight", "https://api.test/posted")])  # fmt: skip
def test_what_the_browser_hides_from_a_page_of_another_origin_is_told(
    call: Call, name: str, lost: str
) -> None:
    shown = call("browser_navigate", url=f"{SITE}/{name}")
    assert shown.meta["missed"] == [lost]
    assert events(shown.text) == [f"- Failed to load: {lost} (fetch)"]


def test_what_the_recording_does_not_decide_is_told_beside_the_page(call: Call) -> None:
    asked = {f"{SITE}/list?sort=b&sort=a": True, f"{SITE}/list?sort=a&sort=b": None}
    for url, doubted in asked.items():
        shown = call("browser_navigate", url=url)
        assert not shown.is_error
        assert shown.meta.get("ambiguous") is doubted
        assert "ambiguous" not in shown.text
        assert shown.meta.get("presumed", 0) == int(bool(doubted))  # counted, as of every tool
        assert (shown.meta.get("doubt", 0.0) > 0.01) is bool(doubted)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("browser_tabs", {"action": "select", "index": float("inf")}, "expected number, received Infinity"),
        ("browser_resize", {"width": float("inf"), "height": 3}, "expected number, received Infinity"),
        ("browser_wait_for", {"time": float("nan")}, "expected number, received NaN"),
        ("browser_snapshot", {"depth": float("-inf")}, "expected number, received Infinity"),
        ("browser_network_requests", {"filter": "/(?i)a/"}, "Invalid regular expression"),
    ],
)
def test_numbers_and_patterns_that_are_none_are_told(call: Call, name: str, given: dict[str, object], says: str) -> None:  # fmt: skip
    shown = call(name, **given)
    assert shown.is_error
    assert says in shown.text


@pytest.mark.slow
def test_each_tool_tells_what_it_caused(call: Call) -> None:
    def told(name: str, **given: object) -> list[str]:
        return events(call(name, **given).text)

    want = [f"- Failed to load: {SITE}/lost/later (fetch)"]
    assert told("browser_navigate", url=f"{SITE}/later") == []
    assert told("browser_click", target="text=Go") == want
    assert told("browser_press_key", key="Enter") == want
    assert told("browser_evaluate", function="() => document.querySelector('button').click()") == want
    assert told("browser_wait_for", time=1) == []
    call("browser_evaluate", function="() => { setTimeout(() => fetch('/lost/later'), 60000); }")
    assert told("browser_take_screenshot") == []
    waited = told("browser_wait_for", time=30) + told("browser_wait_for", time=30)
    assert waited == want


@pytest.mark.slow
def test_long_lists_are_cut_and_a_missing_page_is_an_error(call: Call) -> None:
    many = events(call("browser_navigate", url=f"{SITE}/many").text)
    assert len(many) == 26
    assert many[0] == f"- Failed to load: {SITE}/lost/00 (image)"
    assert many[-1] == "- Failed to load: 5 more"
    gone = call("browser_navigate", url=f"{SITE}/nowhere")
    assert gone.is_error
    assert events(gone.text) == []
    assert "net::ERR_INTERNET_DISCONNECTED" in gone.text
