"""The gateway opens no outgoing connection: its code has no way to, and the running one doesn't."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stillweb.proxy
from tests.proxy.frozen import Site
from tests.support.waiting import STARTS

ROOT = Path(stillweb.proxy.__file__).parent
FOLDERS = ("replay", "net")  # everything of `proxy` that runs in the gateway
FORBIDDEN_NAMES = {
    "connect", "connect_ex", "create_connection", "open_connection", "open_unix_connection", "create_unix_connection",
    "sock_connect", "start_tls", "create_datagram_endpoint", "sendto", "urlopen", "urlretrieve", "getaddrinfo",
}  # fmt: skip
FORBIDDEN_MODULES = {
    "http.client",
    "urllib.request",
    "httpx",
    "requests",
    "aiohttp",
    "ftplib",
    "smtplib",
    "mitmproxy",
    "socks",
    "httpcore",
}


def offences(source: str) -> list[str]:
    """Names in a module by which a connection could be opened."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_NAMES:
            found.append(node.attr)
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            found.append(node.id)
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if node.module in FORBIDDEN_MODULES:
                found.append(node.module or "")
            found += [a.name for a in node.names if a.name in FORBIDDEN_NAMES]
    return found


def loaded() -> list[str]:
    """Modules of ours that serving loads."""
    code = "import sys, stillweb.proxy.replay.gateway, stillweb.proxy.replay.http2; print(*sorted(m for m in sys.modules if m.startswith('stillweb.proxy.')))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.slow
def test_no_module_of_the_gateway_can_open_a_connection() -> None:
    modules = {ROOT.joinpath(*name.split(".")[2:]).with_suffix(".py") for name in loaded()}
    modules = {path for path in modules if path.exists()} | set((ROOT / "replay").glob("*.py"))
    assert len(modules) > 20
    for path in sorted(modules):
        found = offences(path.read_text())
        if path.stem == "addresses":
            found.remove("getaddrinfo")  # of the address to listen on
        if path.stem == "replies":
            found.remove("connect")  # sqlite3's, to a file
        assert found == [], path


def test_the_gateway_runs_nothing_from_elsewhere() -> None:
    out = loaded()
    outside = {name for name in out if name.split(".")[2] not in FOLDERS}
    assert len(out) > 20
    assert not outside


def test_the_search_finds_what_it_looks_for() -> None:
    assert offences("import socket\nsocket.create_connection(('a', 1))") == ["create_connection"]
    assert offences("sock.connect(x)") == ["connect"]
    assert offences("from urllib.request import urlopen") == ["urllib.request", "urlopen"]
    assert offences("import httpx") == ["httpx"]


PROGRAM = """
import socket, ssl, subprocess, sys, threading
seen = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.gethostbyname", "subprocess.Popen"):
        seen.append((event, arguments[1:] if event.startswith("socket.c") else arguments))
    elif event == "socket.getaddrinfo":
        seen.append((event, arguments[:1]))
sys.addaudithook(hook)
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
with Snapshot.open(sys.argv[1]) as snapshot, Gateway(snapshot, authority=Authority.load_or_create(), virtual_hosts={}) as gateway:
    print(gateway.port, gateway.ca_path, flush=True)
    sys.stdin.readline()
own = ("127.0.0.1", b"127.0.0.1")  # the address that is listened on, which needs no asking
outside = [s for s in seen if not (s[0].startswith("socket.get") and s[1][0] in own)]
print(outside)
if len(sys.argv) > 2:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    print(any(s[0] == "socket.connect" for s in seen))
"""


@pytest.mark.slow
def test_a_running_gateway_connects_to_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"x")
    site.add("https://two.example/", b"x", protocol="h2")
    with site.open():
        pass
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "snap")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    port, ca = process.stdout.readline().split()
    urls = [
        "https://site.example/",
        "https://site.example/none",
        "https://two.example/",
        "http://unknown.example/",
        "https://127.0.0.1:9/",
        "http://stillweb.local/",
    ]
    subprocess.run(
        ["curl", "-sS", "--proxy", f"http://127.0.0.1:{port}", "--cacert", ca, *urls],
        capture_output=True, check=True, timeout=STARTS,
    )  # fmt: skip
    out, _ = process.communicate("\n", timeout=STARTS)
    assert out.strip() == "[]"


def test_the_hook_sees_a_connection(tmp_path: Path) -> None:
    import socket

    site = Site(tmp_path / "snap")
    with site.open():
        pass
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "snap"), str(server.getsockname()[1])]
        done = subprocess.run(
            arguments, input="\n", capture_output=True, text=True, env=env, timeout=STARTS, check=True
        )
    assert done.stdout.split("\n")[-2] == "True"
