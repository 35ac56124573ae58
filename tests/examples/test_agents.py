"""The example agent as a Python program, for Node and as an MCP client: recorded once, it replays unchanged and with no way out."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from stillweb.proxy.net.isolation import can_isolate
from stillweb.snapshots.snapshot import Snapshot
from tests.interop.readers import ROOT
from tests.support.openai_endpoint import Asked, chat_answer
from tests.support.waiting import STARTS

AGENTS = ROOT / "examples" / "agents"
QUESTION = "Which penguin is the heaviest?"
BIRDS = "https://data.example/birds"
PAGE = "<!DOCTYPE html><html><body><h1>Birds</h1><p>The Emperor weighs most of all penguins, some 30 kg.</p></body></html>"
FOUND = {
    "searchParameters": {"q": "heaviest penguin"},
    "organic": [{"title": "Birds", "link": BIRDS, "position": 1}],
}
HOSTS = ("google.serper.dev", "data.example", "model.example")
SECRETS = {"OPENAI_API_KEY": "sk-of-the-model", "SERPER_API_KEY": "serper-of-the-search"}


def model(asked: Asked) -> Any:
    """Searches if it can, reads what was found, and says the last name that weighs most."""
    names = [tool["function"]["name"] for tool in asked.body["tools"]]
    if "search" in names and not asked.tool_answers:
        return [("search", {"q": "heaviest penguin"})]
    heaviest = re.search(r"The (\w+) weighs most", " ".join(asked.tool_answers))
    if heaviest:
        return f"The {heaviest[1]}."
    links = re.findall(r"https://\S+", asked.tool_answers[-1]) if asked.tool_answers else [BIRDS]
    return [(names[-1], {"url": links[0]})]


class Web(BaseHTTPRequestHandler):
    """A search service, a site and a model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.say(200, "text/html", PAGE.encode()) if self.path == "/birds" else self.say(
            404, "text/plain", b"no"
        )

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/search":
            assert self.headers["x-api-key"] == SECRETS["SERPER_API_KEY"]
            return self.say(200, "application/json", json.dumps(FOUND).encode())
        assert self.headers["authorization"] == f"Bearer {SECRETS['OPENAI_API_KEY']}"
        asked = Asked(sent, "chat")
        return self.say(200, *chat_answer(sent, model(asked)))

    def say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@dataclass
class Origin:
    """Server of the test's web, with what `stillweb record` needs to reach it."""

    options: list[str]
    stop: Any


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], hosts: Iterable[str], folder: Path) -> Iterator[Origin]:
    """Serve `hosts` by TLS on loopback until the origin is stopped."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "origin.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*hosts).configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    at = f"127.0.0.1:{server.server_address[1]}"

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    options = ["--ca-file", str(folder / "origin.pem")]
    yield Origin([*options, *(word for host in hosts for word in ("--resolve", f"{host}={at}"))], stop)
    if thread.is_alive():
        stop()


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    with served(Web, HOSTS, tmp_path) as origin:
        yield origin


def program(name: str) -> list[str]:
    if name == "node":
        found = shutil.which("node")
        if found is None:
            pytest.skip("no Node: ./setup.sh --peers installs it")
        return [found, "agent.mjs", QUESTION]
    if name == "python":
        return [sys.executable, "agent.py", QUESTION]
    server = ROOT / ".venv-peers-fetch/bin/python"
    if not server.exists():
        pytest.skip("no mcp-server-fetch: ./setup.sh --peers installs it")
    return [sys.executable, "agent_mcp.py", QUESTION, str(server), "-m", "mcp_server_fetch"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python", "node", "mcp"])
def test_recorded_once_it_replays_with_no_way_out(name: str, origin: Origin, tmp_path: Path) -> None:
    command, snap = program(name), str(tmp_path / "snap")
    stillweb = [sys.executable, "-c", "from stillweb.harness.cli import main; main()"]
    environment = {**os.environ, "OPENAI_BASE_URL": "https://model.example/v1",
                   "XDG_STATE_HOME": str(tmp_path / "state"), "STILLWEB_STATE": str(tmp_path / "state")}  # fmt: skip

    if name == "mcp":
        environment["PATH"] = (
            ""  # the real server that finds Node extracts with it, and installs packages first
        )

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*stillweb, *words, "--", *command], cwd=AGENTS, env={**environment, **more},
                              capture_output=True, text=True, timeout=STARTS)  # fmt: skip

    recorded = run("record", "-o", snap, *origin.options, **SECRETS)
    assert (recorded.returncode, recorded.stdout) == (0, "The Emperor.\n"), recorded.stderr
    origin.stop()
    for path in Path(snap).rglob("*"):
        assert not path.is_file() or not any(
            value.encode() in path.read_bytes() for value in SECRETS.values()
        )
    alone = [] if can_isolate() else ["--isolate"]
    any_key = dict.fromkeys(SECRETS, "any")
    ledger = tmp_path / "ledger.jsonl"
    again = run("replay", snap, *alone, "--max-misses", "0", "--ledger", str(ledger), **any_key)
    assert (again.returncode, again.stdout) == (0, recorded.stdout), again.stderr
    served = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert not [entry for entry in served if entry.get("verdict") == "miss"]
    assert not alone or "no way out" in again.stderr
    with Snapshot.open(snap) as snapshot:
        hosts = {capture.url.split("/")[2] for capture in snapshot.captures()}
    assert hosts == set(HOSTS) - ({"google.serper.dev"} if name == "mcp" else set())
