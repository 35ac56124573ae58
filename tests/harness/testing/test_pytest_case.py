"""A test's tools: what they miss is the test's, and nothing of theirs outlives it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from stillweb.harness.testing.pytest_case import Case
from stillweb.harness.testing.shared_snapshots import SharedSnapshots
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import Recorder

SITE = "https://holes.test"
PAGE = "<title>Holes</title><p>here</p><script>fetch('/lost').catch(() => 0)</script>"


@pytest.mark.slow
def test_what_a_browser_misses_is_the_tests_and_it_ends_with_it(tmp_path: Path) -> None:
    """The page was named as the miss, not what it lacks; browser and gateway went on after the test."""
    before = set(threading.enumerate())
    view = f"{SITE}/#view=0123456789abcdef"
    with Writer.open(tmp_path / "site") as writer:
        Recorder(writer).add(f"{SITE}/", PAGE)
    shelf = SharedSnapshots([tmp_path / "site"], "none")
    case = Case("a test", shelf)
    case.start()

    async def browse() -> list[tuple[bool, str]]:
        tools = case.tools("browser")
        found = [await tools.call("browser_navigate", {"url": url}) for url in (f"{SITE}/", view)]
        return [(result.is_error, result.meta["verdict"]) for result in found]

    assert asyncio.run(browse()) == [(False, "miss"), (True, "miss")]
    assert [entry["url"] for entry in case.misses()] == [f"{SITE}/lost", view]
    assert "2 requests are not in the snapshot" in (case.complaint() or "")
    case.close()
    shelf.close()
    assert set(threading.enumerate()) <= before
