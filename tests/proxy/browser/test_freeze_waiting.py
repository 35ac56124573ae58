"""The clock stands while a page loads something, or the browser works for it: how long that takes hangs on the machine."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser.settle import SettleTimeouts
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

SLOW = 0.25  # s that an answer takes: a clock that went on would go to its limit meanwhile
PAGE = """<!DOCTYPE html><title>Waits</title><script>
const seen = window.seen = {}, now = () => performance.now();
const note = (name) => () => (seen[name] ||= []).push(now());
setInterval(() => {}, 10);
onload = note("load"); document.addEventListener("DOMContentLoaded", note("parsed"));
const made = (name, set) => { const e = document.createElement(name); e.onload = note(`${name} ${now()}`); set(e); document.head.append(e); };
setTimeout(() => {
  made("script", (e) => { e.src = "/slow.js?made"; });
  made("script", (e) => { e.type = "module"; e.src = "/slow.js?module"; });
  made("link", (e) => { e.rel = "stylesheet"; e.href = "/slow.css"; });
  made("img", (e) => { e.src = "/slow.svg?made"; });
  made("iframe", (e) => { e.src = "/slow.html"; });
}, 100);
setTimeout(() => { const i = new Image(); i.onload = note("detached"); i.src = "/slow.svg?detached"; }, 200);
setTimeout(() => { made("img", (e) => { e.src = "/slow.svg?1";
  e.onload = () => { note("first")(); e.onload = note("second"); e.src = "/slow.svg?2"; }; }); }, 300);
setTimeout(() => { made("div", (e) => { e.attachShadow({mode: "open"}).innerHTML = "<img src='/slow.svg?shadow'>";
  e.shadowRoot.firstChild.onload = note("shadow"); }); }, 400);
setTimeout(async () => { await crypto.subtle.digest("SHA-256", new Uint8Array(3e7)); note("digest")(); }, 500);
setTimeout(() => { const q = indexedDB.open("x", 1); q.onupgradeneeded = () => q.result.createObjectStore("s");
  q.onsuccess = () => { const t = q.result.transaction("s", "readwrite"); t.objectStore("s").put(new Blob([new Uint8Array(1e6)]), "k");
    t.oncomplete = () => { q.result.transaction("s").objectStore("s").get("k").onsuccess = note("stored"); }; }; }, 600);
setTimeout(async () => { await new Blob([new Uint8Array(3e7)]).text(); note("blob")(); }, 700);
setTimeout(() => { const r = new FileReader(); r.onload = note("file"); r.readAsDataURL(new Blob([new Uint8Array(1e7)])); }, 800);
setTimeout(() => { const c = document.createElement("canvas"); c.width = c.height = 1500; c.getContext("2d").fillRect(0, 0, 9, 9);
  c.toBlob(note("canvas")); }, 900);
setTimeout(() => { new IntersectionObserver((l) => note(`seen ${l[0].isIntersecting}`)()).observe(target);
  new ResizeObserver(note("sized")).observe(target); }, 1000);
setTimeout(() => target.remove(), 1010);
</script><p id=target>target</p><script src="/slow.js?parsed"></script><img src="/slow.svg?parsed">"""
EXPECTED = {
    "parsed": [0],
    "load": [0],
    "script 100": [100, 100],
    "link 100": [100],
    "img 100": [100],
    "iframe 100": [100],
    "detached": [200],
    "first": [300],
    "second": [300],
    "shadow": [400],
    "digest": [500],
    "stored": [600],
    "blob": [700],
    "file": [800],
    "canvas": [900],
    "seen true": [1000],
    "seen false": [1010],
    "sized": [1000, 1010],
}
# What never says that it has loaded.
SILENT = """<!DOCTYPE html><p id=p>waiting</p><div id=box></div><script>
box.innerHTML = '<script src="/quick.js"></' + 'script><iframe src="/nothing"></iframe><img loading=lazy style="margin-top: 9000px" src="/slow.svg">';
const made = document.createElement("script"); made.type = "text/template"; made.src = "/quick.js"; document.head.append(made);
setTimeout(() => { p.textContent = `at ${performance.now()}`; }, 500);
</script>"""
OPEN = """<!DOCTYPE html><p id=p>waiting</p><script>onload = () => setTimeout(() => { document.open();
document.write("<p>never closed</p>"); setTimeout(() => document.write(`<p>at ${performance.now()}`), 500); }, 10);</script>"""
FILES = {
    "/waits": ("text/html", PAGE),
    "/silent": ("text/html", SILENT),
    "/open": ("text/html", OPEN),
    "/slow.js": ("text/javascript", "0"),
    "/quick.js": ("text/javascript", "0"),
    "/slow.css": ("text/css", "p { color: red }"),
    "/slow.svg": ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"),
    "/slow.html": ("text/html", "<p>inner"),
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path.startswith("/slow"):
        time.sleep(SLOW)
    if path == "/nothing":
        return 204, {}, b""
    kind, text = FILES.get(path.partition("?")[0], ("text/plain", "nothing"))
    return 200, {"Content-Type": kind}, text.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


def look(browser: Browsing, url: str, ask: str, patience: SettleTimeouts | None = None) -> tuple[Any, str]:
    async def go() -> tuple[Any, str]:
        driver = await browser.driver(patience)
        _, calm = await driver.open(url)
        seen = await driver.page.evaluate(ask)
        await driver.context.close()
        return seen, calm.reason

    return browser.run(go())


@pytest.mark.slow
def test_nothing_that_loads_and_no_work_of_the_browser_takes_time(browser: Browsing, site: str) -> None:
    seen, reason = look(browser, f"{site}/waits", "() => seen")
    assert seen == EXPECTED
    assert not reason


def test_what_never_says_that_it_has_loaded_is_given_up(browser: Browsing, site: str) -> None:
    assert look(browser, f"{site}/silent", "() => p.textContent") == ("at 500", "")


@pytest.mark.slow
def test_a_document_that_never_completes_is_given_up(browser: Browsing, site: str) -> None:
    text, reason = look(browser, f"{site}/open", "() => document.body.innerText")
    assert "at 510" in text
    assert not reason
