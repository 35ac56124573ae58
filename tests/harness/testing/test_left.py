"""Clients in a test's own process that left while recording: whether they leave again is known by their patience."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import requests

from stillweb.harness.testing.transports import SnapshotTransport, in_process, requests_adapter
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

URL = "http://slow.test/"


def test_they_leave_at_once_or_have_missed_something(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        Failure(Request("GET", URL), "timeout", "no answer", None, waited=5).write(writer)
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
