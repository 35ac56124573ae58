"""Workers are frozen where a page's own rules say which addresses they may have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.freeze import start_of
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.writer import Writer
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

WORK = "const w = new Worker(URL); w.onmessage = (e) => { seen.said = e.data; };"
REFUSED = "try { new Worker(OTHER); } catch (e) { seen.refused = e.constructor.name; }"
PAGES = {
    "typed": ("p", "const p = trustedTypes.createPolicy('p', {createScriptURL: (s) => s});", "p.createScriptURL('/time.js')"),
    "strict": ("q p", """const q = trustedTypes.createPolicy('q', {createScriptURL: () => { throw new Error('never'); }});
        const p = trustedTypes.createPolicy('p', {createScriptURL: (s) => { if (s !== '/time.js') throw new Error('not this'); return s; }});""",
               "p.createScriptURL('/time.js')"),
    "default": ("default", "trustedTypes.createPolicy('default', {createScriptURL: (s) => s === '/time.js' ? s : null});", "'/time.js'"),
}  # fmt: skip


# One thinks for longer than an answer is waited for at once; one ends itself.
THINKS = b"""onmessage = () => { const { buffer } = new WebAssembly.Memory({initial: 1, maximum: 1, shared: true});
Atomics.wait(new Int32Array(buffer), 0, 0, 2500); postMessage("thought"); };"""
THINKING = """<!DOCTYPE html><script>const seen = []; setInterval(() => {}, 10);
const w = new Worker("/thinks.js"); w.onmessage = (e) => seen.push(e.data, performance.now()); setTimeout(() => w.postMessage(1), 100);
const own = []; const x = new Worker("/ends.js"); x.onmessage = (e) => own.push(e.data);</script>"""
OWN_ONLY = """<!DOCTYPE html><script>const seen = {};
const w = new Worker("/module.js", {type: "module"}); w.onmessage = (e) => { seen.said = e.data; }; w.onerror = () => { seen.said = "failed"; };
</script>"""


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    name = path.removeprefix("/")
    if name == "thinking":
        return 200, {"Content-Type": "text/html"}, THINKING.encode()
    if name in ("thinks.js", "ends.js"):
        code = THINKS if name == "thinks.js" else b"postMessage('last'); close();"
        return 200, {"Content-Type": "text/javascript"}, code
    if name == "own":
        policy = "script-src 'self' 'unsafe-inline'"
        return 200, {"Content-Type": "text/html", "Content-Security-Policy": policy}, OWN_ONLY.encode()
    if name not in PAGES:
        return 200, {"Content-Type": "text/javascript"}, b"postMessage([Date.now(), location.pathname])"
    allowed, made, url = PAGES[name]
    rules = f"require-trusted-types-for 'script'; trusted-types {allowed}"
    code = (
        f"const seen = {{}}; {made} {WORK.replace('URL', url)} {REFUSED.replace('OTHER', repr('/other.js'))}"
    )
    html = {"Content-Type": "text/html", "Content-Security-Policy": rules}
    return 200, html, f"<!DOCTYPE html><script>{code}</script>".encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as url:
        yield url


def test_a_worker_under_trusted_types(browser: Browsing, site: str) -> None:
    async def go() -> dict[str, Any]:
        driver, seen = await browser.driver(), {}
        for page in PAGES:
            await driver.open(f"{site}/{page}")
            seen[page] = await driver.page.evaluate("seen")
        return seen

    said = {"said": [start_of(Profile()), "/time.js"], "refused": "TypeError"}
    assert browser.run(go()) == dict.fromkeys(PAGES, said)


def test_a_module_where_only_the_site_s_own_scripts_may_be(browser: Browsing, site: str) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(f"{site}/own")
        seen = await driver.page.evaluate("seen")
        await driver.context.close()
        return seen

    assert browser.run(go()) == {"said": [start_of(Profile()), "/module.js"]}


@pytest.mark.slow
def test_a_worker_that_thinks_takes_no_time_and_one_that_ended_is_not_waited_for(
    browser: Browsing, site: str
) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        _, calm = await driver.open(f"{site}/thinking")
        seen = await driver.page.evaluate("[seen, own]")
        await driver.context.close()
        return seen, calm.reason

    assert browser.run(go()) == ([["thought", 100], ["last"]], "")


WORDS = "<title>Workers</title><h1>A page that has a worker</h1><p>It says what it is for, so that nobody takes it for empty.</p>"
PARTS = {
    "/module": f"{WORDS}<script src=/module.js></script>",
    "/module.js": "new Worker('/imports.js', {type: 'module'});",
    "/imports.js": "import {x} from './x.js'; postMessage(x);",
    "/x.js": "export const x = 5;",
    "/nested": f"{WORDS}<script src=/nested.js></script>",
    "/nested.js": "new Worker('/outer.js');",
    "/outer.js": "new Worker('/inner.js');",
    "/inner.js": "postMessage(1);",
    "/throws": f"{WORDS}<script src=/throws.js></script>",
    "/throws.js": "new Worker('/fault.js');",
    "/fault.js": "throw new Error('its own');",
}


def strict(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    media = "text/javascript" if path.endswith(".js") else "text/html"
    said = {"Content-Type": media, "Content-Security-Policy": "default-src 'self'"}
    return (200 if path in PARTS else 404), said, PARTS.get(path, "").encode()


@pytest.mark.slow
def test_a_worker_that_was_not_loaded_is_named(tmp_path: Path) -> None:
    pages = {"/module": ["/imports.js"], "/nested": ["/inner.js"], "/throws": []}
    with serve(strict) as site, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        results = Fetcher(recorder, writer).fetch([site + page for page in pages])
    named = {}
    for page, result in zip(pages, results, strict=True):
        told = [note for note in result.notes if note.startswith("a worker was not loaded")]
        named[page] = [note.partition(f": {site}")[2].partition(" (")[0] for note in told]
    assert named == pages
