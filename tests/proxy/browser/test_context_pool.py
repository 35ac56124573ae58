"""A context made ready ahead is as one made when it is wanted: same page, same time and chance, its session's line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser.browser import BrowserHost, ContextPool, complete
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record

SITE = "http://spare.test/"
PAGE = b"""<!DOCTYPE html><title>x</title><p id=p></p><script>
p.textContent = [Date.now(), Math.random(), crypto.randomUUID(), performance.now(), performance.timeOrigin, history.length,
  document.cookie, localStorage.x, document.lastModified, innerWidth, document.visibilityState].join(" ");
document.cookie = "a=b"; localStorage.x = 1;</script>"""


@pytest.mark.slow
def test_a_spare_is_as_any_other(tmp_path: Path) -> None:
    profile = complete(Profile())
    with Writer.open(tmp_path / "s", profile=profile) as writer:
        record(writer, SITE, PAGE, headers=(("Content-Type", "text/html"),))

    async def seen(context: Any) -> str:
        (page,) = context.pages
        driver = Driver(context, page=page)
        await driver.begin(SITE)
        text = str(await page.inner_text("p"))
        await context.close()
        return text

    async def go(gateway: Gateway) -> list[str]:
        async with BrowserHost(ca=gateway.ca_path) as host:
            spares = ContextPool(host)
            try:
                found = [await seen(await spares.take("one", gateway, profile))]
                for name in ("two", "three"):
                    (made,) = spares._made.values()
                    _, ready = await made
                    context = await spares.take(name, gateway, profile)
                    assert context is ready
                    found.append(await seen(context))
                (made,) = spares._made.values()
                _, lost = await made
                await lost.close()  # as when the browser has ended
                found.append(await seen(await spares.take("four", gateway, profile)))
            finally:
                await spares.close()
            return found

    with (
        Snapshot.open(tmp_path / "s") as snapshot,
        Gateway(snapshot) as gateway,
    ):
        found = asyncio.run(go(gateway))
        assert sorted(gateway.stats.sessions) == ["four", "one", "three", "two"]
        entries = gateway.ledger.entries()
    assert len(set(found)) == 1
    assert {entry["session"] for entry in entries} == {"one", "two", "three", "four"}
    assert {entry["verdict"] for entry in entries} == {"exact"}
