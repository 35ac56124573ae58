"""Views put into a snapshot: which captures belong to which."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from stillweb.proxy.browser.capture_view import Recording
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab, client, gate
from tests.support.waiting import until


def test_what_took_long_belongs_to_the_next_view_and_is_not_left_out(lab: Lab, tmp_path: Path) -> None:
    """It began before what the first view was told of, and ended after that."""
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        recording = Recording(recorder, writer, "default")

        async def told() -> list[str]:
            return [capture.url for capture in await recording.new_captures()]

        async def run() -> None:
            slow = asyncio.ensure_future(asyncio.to_thread(c.get, "http://plain.example/slow"))
            assert await asyncio.to_thread(until, lambda: recorder.stats.under_way == 1)
            await asyncio.to_thread(c.get, "http://plain.example/headers")
            recording.traffic = cast(
                Any, SimpleNamespace(hanging=lambda: ["http://plain.example/slow"], unread={}, untold=set())
            )
            assert await told() == ["http://plain.example/headers"]
            gate.open.set()
            await slow
            recording.traffic = None
            assert await told() == ["http://plain.example/slow"]
            assert await told() == []
            assert recording.count == 2

        try:
            asyncio.run(run())
        finally:
            gate.open.set()
