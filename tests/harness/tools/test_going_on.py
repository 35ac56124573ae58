"""Users in addresses and odd redirects lead `fetch` where they lead the real tool's client."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from stillweb.harness.tools import Toolset
from stillweb.harness.tools.contract import ToolResult
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import Recorder

HERE = "http://here.test:8080"
ANN = "Basic " + base64.b64encode(b"ann:p@ss").decode()


def said(path: Path, url: str) -> ToolResult:
    async def ask(snapshot: Snapshot) -> ToolResult:
        session = Toolset(snapshot, ["fetch"]).session("s")
        return await session.call("fetch", {"url": url, "raw": True})

    with Snapshot.open(path) as snapshot:
        return asyncio.run(ask(snapshot))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "s"
    places = {
        "hostless": "http:///page",
        "scheme": "http:/page",
        "relative": "///page",
        "user": f"{HERE.replace('//', '//bob:secret@')}/page",
        "nowhere": "http:page",
    }
    with Writer.open(path) as writer:
        site = Recorder(writer)
        for name, place in places.items():
            site.add(f"{HERE}/{name}", status=302, headers=(("Location", place),))
        site.add(f"{HERE}/page", "at the port", "text/plain")
        site.add("http://here.test/page", "at no port", "text/plain")
    return path


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"{HERE}/hostless", "at no port"),
        (f"{HERE}/scheme", "at no port"),
        (f"{HERE}/relative", "at the port"),
        (f"{HERE}/user", "at the port"),
    ],
)
def test_it_goes_where_httpx_goes(site: Path, url: str, text: str) -> None:
    result = said(site, url)
    assert (result.is_error, result.text.splitlines()[-1]) == (False, text)
    assert f"Contents of {url}:" in result.text


def test_an_address_without_a_name_is_nowhere(site: Path) -> None:
    assert said(site, f"{HERE}/nowhere").text.startswith(f"Failed to fetch {HERE}/nowhere: ConnectError(")


def test_a_page_that_asks_who_comes_knows_who_does(tmp_path: Path) -> None:
    """Recorded with a user and without: each is answered as it was, and never with the other's."""
    from datetime import UTC, datetime

    from stillweb.snapshots.capture import Exchange
    from stillweb.snapshots.request import Request

    with Writer.open(tmp_path / "s") as writer:
        for number, (who, status, body) in enumerate(
            [((), 401, b"who?"), ((("Authorization", ANN),), 200, b"ann's")]
        ):
            begin = writer.event("s")
            fields = (("Content-Type", "text/plain"), ("Vary", "Authorization"))
            at = datetime(2025, 1, 1, 0, 0, number, tzinfo=UTC)
            request = Request("GET", f"{HERE}/mine", who)
            writer.exchange(Exchange(request, status, "OK", fields, body, at, "s", begin, writer.event("s")))
    assert said(tmp_path / "s", f"{HERE}/mine").text == f"Failed to fetch {HERE}/mine - status code 401"
    assert said(tmp_path / "s", f"{HERE.replace('//', '//ann:p%40ss@')}/mine").text.endswith("ann's")
