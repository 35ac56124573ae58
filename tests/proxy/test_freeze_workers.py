"""Workers are frozen where a page's own rules say which addresses they may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.freeze import start_of
from snapshots.profile import Profile
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


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    name = path.removeprefix("/")
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


@pytest.mark.parametrize("page", PAGES)
def test_a_worker_under_trusted_types(browser: Browsing, site: str, page: str) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(f"{site}/{page}")
        seen = await driver.page.evaluate("seen")
        await driver.context.close()
        return seen

    assert browser.run(go()) == {"said": [start_of(Profile()), "/time.js"], "refused": "TypeError"}
