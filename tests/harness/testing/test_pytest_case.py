"""A test's tools: what they miss is the test's, and nothing of theirs outlives it."""

import asyncio
import threading
from pathlib import Path

import httpx
import pytest
import requests

from stillweb.harness.testing.pytest_case import Case
from stillweb.harness.testing.shared_snapshots import SharedSnapshots
from stillweb.harness.testing.transports import SnapshotTransport, in_process, requests_adapter
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import Recorder

SITE = "https://holes.test"
PAGE = "<title>Holes</title><p>here</p><script>fetch('/lost').catch(() => 0)</script>"


@pytest.mark.slow
def test_what_a_browser_misses_is_the_tests_and_it_ends_with_it(tmp_path: Path) -> None:
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


URL = "http://slow.test/"


def test_they_leave_at_once_or_have_missed_something(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        Failure(Request("GET", URL), "timeout", "no answer", None, seconds_waited=5).write(writer)
    with Snapshot.open(tmp_path / "s") as snapshot:
        ledger = Ledger()
        answer = in_process(snapshot, ledger, "default", "rule")
        client, session = httpx.Client(transport=SnapshotTransport(answer)), requests.Session()
        session.mount("http://", requests_adapter(answer))
        for patience in (5, httpx.Timeout(2, read=5)):
            with pytest.raises(httpx.ReadTimeout):
                client.get(URL, timeout=patience)
        for seconds in (5, (1, 5)):
            with pytest.raises(requests.ReadTimeout):
                session.get(URL, timeout=seconds)
        assert {entry["verdict"] for entry in ledger.entries()} == {"failed:timeout"}
        for more in (client.get(URL, timeout=60), client.get(URL, timeout=None), session.get(URL)):
            assert more.status_code == 504
        assert len(ledger.misses()) == 1  # however often it is tried
