"""An answer that the browser keeps from its page was asked for all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import check
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

PAGE = b"<title>Mills</title><link rel=stylesheet href=/style.css><h1>Mills</h1><p>A page whose style is an error's page.</p>"


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    said = {"Content-Type": "text/html", "X-Content-Type-Options": "nosniff"}
    return 200, said, PAGE if path == "/" else b"<p>There is no such style.</p>"


@pytest.mark.slow
def test_a_style_that_the_browser_refuses_is_not_called_unasked(tmp_path: Path) -> None:
    profile = complete(Profile())
    with (
        serve(answer) as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        Fetcher(recorder, writer, profile).fetch([f"{base}/"])
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        recorded = {capture.url for capture in snapshot.captures()}
        [view] = check(snapshot, gateway).views
    assert f"{base}/style.css" in recorded
    assert (view.same, view.unasked) == (True, [])
