"""The frozen fetch server beside the real mcp-server-fetch: tools/list, prompts, and answers envelope for envelope.

Extracted text is the one thing meant to differ (ours is frozen, by trafilatura), so contents are compared for raw pages
and other media, and envelopes (prefix, URL, trailer, errors) for all. STILLWEB_PAGES=200 asks of more pages.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.interop.fetch_site import Origin, calls, envelope
from tests.interop.readers import ROOT
from tests.support.waiting import HANG, STARTS

PAGES = int(os.environ.get("STILLWEB_PAGES", "10"))
CLIENT = Path(__file__).parent / "clients" / "client.py"


@dataclass
class Peer:
    """A released server and the contract that repeats it."""

    contract: str
    python: Path
    more: tuple[str, ...] = ()


PEERS = [
    Peer("mcp-fetch@0.6.3", ROOT / ".venv-peers-fetch/bin/python"),
    Peer("mcp-fetch@2026.10.24", ROOT / ".venv-peers/bin/python", ("--allow-private-ips",)),
]


@dataclass
class Site:
    """The running origin and what was recorded of it."""

    origin: str
    wacz: Path
    server: ThreadingHTTPServer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("fetch")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    origin = f"http://127.0.0.1:{server.server_address[1]}"
    with (
        Writer.open(folder / "site") as writer,
        Recorder(writer, authority=Authority.load_or_create(folder / "state")) as recorder,
        httpx.Client(proxy=recorder.proxy_url(), timeout=HANG) as http,
    ):
        for path in ("", "never", "robots.txt", *map(str, range(PAGES))):
            http.get(f"{origin}/{path}")
        recorder.wait_quiet()
    try:
        yield Site(origin, seal(folder / "site").path, server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def stillweb(commands_path: str) -> str:
    """The command, which forks."""
    return str(shutil.which("stillweb", path=commands_path))


def told(server: list[str], asked: list[dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    """Return the answers of a server over stdio to the official client."""
    made = [("fetch", one) for one in asked]
    job = {"era": "legacy", "command": server, "calls": made, "prompts": [{}, *asked[:40:5]]}
    (tmp_path / "job").write_text(json.dumps(job))
    # with Node on the path the real server extracts another way, ten times as slowly
    done = subprocess.run(
        [sys.executable, str(CLIENT), f"@{tmp_path / 'job'}"],
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=STARTS + 5 * PAGES,
    )
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


@pytest.mark.slow
def test_the_newer_one_knows_no_other_tool(site: Site, stillweb: str) -> None:
    command = [stillweb, "mcp", str(site.wacz)]
    for contract, error in (
        ("mcp-fetch@0.6.3", None),
        ("mcp-fetch@2026.10.24", [-32602, "Unknown tool: nope"]),
    ):
        job = {"era": "legacy", "command": [*command, "--contract", contract], "calls": [("nope", {})]}
        done = subprocess.run(
            [sys.executable, str(CLIENT), json.dumps(job)], capture_output=True, timeout=STARTS
        )
        assert json.loads(done.stdout)["results"][0].get("error") == error


def seen(result: dict[str, Any], arguments: dict[str, Any]) -> Any:
    if "error" in result:
        return result["error"]
    if "messages" in result:
        (message,) = result["messages"]
        failed = message["content"]["text"].startswith("Failed") and message["content"]["text"]
        return result["description"], message["role"], failed
    return result["isError"], [
        {**part, "text": envelope(part["text"], arguments)} for part in result["content"]
    ]


@pytest.mark.slow
@pytest.mark.timeout(600 + 10 * PAGES)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.contract)
def test_the_frozen_server_and_a_tape_of_its_calls_are_the_real_one(
    peer: Peer, site: Site, stillweb: str, tmp_path: Path
) -> None:
    """The real server is asked through `mcp-record`, so this also shows that a recording changes nothing."""
    if not peer.python.exists():
        pytest.skip("the real server is not here: ./setup.sh --peers installs it")
    asked = calls(site.origin, PAGES)
    server = [str(peer.python), "-m", "mcp_server_fetch", *peer.more]
    real = told([stillweb, "mcp-record", "-o", str(tmp_path / "tape"), "--", *server], asked, tmp_path)
    frozen = told([stillweb, "mcp", str(site.wacz), "--contract", peer.contract], asked, tmp_path)
    assert frozen["tools"] == real["tools"]
    assert frozen["prompts"] == real["prompts"]
    assert frozen["server"]["name"] == real["server"]["name"]
    assert len(real["results"]) == len(frozen["results"]) > len(asked)
    shown = zip(real["results"], frozen["results"], strict=True)
    for arguments, (theirs, ours) in zip_longest([*asked, {}], shown, fillvalue={}):
        assert seen(ours, arguments) == seen(theirs, arguments), arguments
    again = told([stillweb, "mcp-replay", str(tmp_path / "tape")], asked, tmp_path)
    for result in again["results"]:
        result.pop("_meta", None)
        if "content" in result:
            assert result.pop("mark")["verdict"] == "exact"
            result["mark"] = None
    assert again == real
