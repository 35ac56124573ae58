"""`stillweb lookup` says what a replay would serve, also where that follows from another request's capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stillweb
from stillweb.harness.commands.lookup import command
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots import Request, Snapshot
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

URL = "http://site.example/"
ASKED = [
    ("GET", {}),
    ("GET", {"Range": "bytes=1-2"}),
    ("HEAD", {}),
    ("OPTIONS", {"Origin": "http://other.example", "Access-Control-Request-Method": "GET"}),
    ("OPTIONS", {"Origin": "http://other.example", "Access-Control-Request-Method": "PUT"}),
    ("GET", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "eA=="}),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookup") / "snap"
    site = Site(path)
    site.add(URL, b"page", headers=(("Access-Control-Allow-Origin", "*"),))
    with site.open():
        pass
    return path


@pytest.mark.parametrize(("method", "headers"), ASKED)
def test_it_says_what_a_replay_serves(
    made: Path, tmp_path: Path, method: str, headers: dict[str, str]
) -> None:
    words = [str(made), URL, "-X", method, "--json"]
    for field in headers.items():
        words += ["-H", ": ".join(field)]
    shown = CliRunner().invoke(command, words, standalone_mode=False)
    told: dict[str, Any] = json.loads(shown.output)
    asked = Request(method, URL, tuple(headers.items()))
    assert json.loads(json.dumps(stillweb.lookup(made, asked))) == told
    authority = Authority.load_or_create(tmp_path)
    with Snapshot.open(made) as snapshot, Gateway(snapshot, authority=authority) as gateway:
        with client(gateway, "default") as c:
            c.request(method, URL, headers=headers)
        (entry,) = gateway.ledger.entries()
    for name in ("verdict", "derived", "why"):
        assert told.get(name) == entry.get(name), name
    assert shown.return_value == (entry["verdict"] == "miss")
    assert (told["capture"]["offset"] if "capture" in told else None) == (
        entry["capture"]["offset"] if entry["capture"] else None
    )
