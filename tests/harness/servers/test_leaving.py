"""Clients that go away in the middle: over stdio the server ends in peace, the gateway's services answer the next one."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from stillweb.harness.tools import Toolset, http_hosts
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.servers.test_stateless import request
from tests.harness.tools.frozen import BIRDS, make_site
from tests.support.command_line import Started
from tests.support.waiting import HANG, STARTS

COMMAND = [sys.executable, "-c", "from stillweb.harness.cli import main; main()", "mcp"]
HELLO = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "leaver", "version": "0"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]
ASK = {"method": "tools/call", "params": {"name": "fetch", "arguments": {"url": BIRDS}}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaving") / "site"
    make_site(path).close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_a_stdio_client_that_leaves_without_its_answers(site: Path, half: bool) -> None:
    """The client's calls are not read to the end, or the last of them is half a line."""
    process = subprocess.Popen(
        [*COMMAND, str(site)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    messages = [*HELLO, *({"jsonrpc": "2.0", "id": n, **ASK} for n in range(1, 20))]
    lines = "".join(json.dumps(message) + "\n" for message in messages).encode()
    process.stdin.write(lines[:-30] if half else lines)
    process.stdin.flush()
    assert b'"serverInfo"' in process.stdout.readline()
    process.stdout.close()
    process.stdin.close()
    told = process.stderr.read().decode()
    process.wait(timeout=STARTS)
    assert "Traceback" not in told
    assert process.returncode in (0, 1, -13)  # not killed, no hang; a closed pipe may be told


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_whose_client_stays(site: Path, number: signal.Signals) -> None:
    started = Started("mcp", site, stdin=subprocess.PIPE)
    assert started.process.stdin is not None
    started.process.stdin.write(json.dumps(HELLO[0]) + "\n")
    started.process.stdin.flush()
    assert '"serverInfo"' in started.line()
    input_of_client = os.dup(started.process.stdin.fileno())  # which `end` does not close
    started.process.send_signal(number)
    assert started.end().code == 128 + number
    os.close(input_of_client)


@pytest.mark.slow
def test_a_server_that_is_ended_tells_nothing_of_clients_that_left(site: Path) -> None:
    """Each of their calls was a traceback of sixty lines."""
    started = Started("mcp", site, "--transport", "http")
    assert started.process.stderr is not None
    address = httpx.URL(started.process.stderr.readline().split()[-1])
    fields = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with httpx.Client(trust_env=False, timeout=HANG, headers=fields) as client:
        known = client.post(address, json=HELLO[0]).headers["mcp-session-id"]
        body = json.dumps({"jsonrpc": "2.0", "id": 1, **ASK})
        fields |= {"Host": address.netloc.decode(), "Mcp-Session-Id": known, "Content-Length": str(len(body))}
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())])
        for _ in range(5):
            with socket.create_connection((address.host, address.port or 0), HANG) as left:
                left.sendall(f"{head}\r\n\r\n{body}".encode())
        assert client.post(address, json=HELLO[0]).status_code == 200
    started.process.send_signal(signal.SIGTERM)
    assert started.end().code == 128 + signal.SIGTERM  # which sees that there was no traceback


@pytest.mark.slow
def test_a_stateless_client_that_has_said_all_gets_its_answer(site: Path) -> None:
    """Also to what takes its time."""
    message = request("tools/call", name="browser_navigate", arguments={"url": BIRDS})
    started = Started("mcp", site, "--contract", "playwright-mcp", stdin=subprocess.PIPE)
    assert started.process.stdin is not None
    started.process.stdin.write(json.dumps(message) + "\n")
    done = started.end()
    assert done.code == 0, done
    assert f"Page URL: {BIRDS}" in json.loads(done.out)["result"]["content"][0]["text"]


def test_a_client_of_a_service_that_leaves_while_it_asks(site: Path) -> None:
    with Snapshot.open(site) as snapshot:
        hosts = http_hosts(Toolset(snapshot, ["fetch"]))
        with Gateway(snapshot, virtual_hosts=hosts) as gateway:
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", gateway.port), HANG) as client:
                    client.sendall(
                        b"POST http://api.exa.ai/contents HTTP/1.1\r\nHost: api.exa.ai\r\n"
                        b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"urls": ['
                    )
            with httpx.Client(proxy=gateway.proxy_url("stays"), trust_env=False, timeout=HANG) as client:
                got = client.post("http://api.exa.ai/contents", json={"urls": [BIRDS], "text": True})
            assert "Gentoo" in got.json()["results"][0]["text"]
