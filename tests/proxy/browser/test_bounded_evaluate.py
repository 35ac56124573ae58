"""A page that a script of its own holds up for ever is a failure that says so; nothing waits for ever."""

import asyncio
from pathlib import Path

import pytest

from stillweb.proxy.browser import errors
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import serve
from tests.support.waiting import STARTS

PAGES = {
    "at once": "<p>shown</p><script>for (;;);</script>",
    "when loaded": "<p>shown</p><script>onload = () => setTimeout(() => { for (;;); }, 0)</script>",
    "when scrolled": "<p style=height:5000px>shown</p><script>onscroll = () => { for (;;); }</script>",
}


@pytest.mark.slow
@pytest.mark.parametrize("when", PAGES)
def test_a_page_that_is_held_up_is_given_up(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "SECONDS", 1.0)
    profile = complete(Profile())

    async def fetch(fetcher: Fetcher, url: str) -> list[FetchResult]:
        async with asyncio.timeout(STARTS):
            return await fetcher.fetch_all([url])

    with (
        serve(lambda *_: (200, {"Content-Type": "text/html"}, PAGES[when].encode())) as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        fetcher = Fetcher(recorder, writer, profile, patience=SettleTimeouts(real=1.0))
        [result] = asyncio.run(fetch(fetcher, f"{base}/"))
    assert not result.ok
    assert result.error == f"{base}/: the page did not answer within 1 s: one of its scripts is blocking it"
    assert result.captures == 1
