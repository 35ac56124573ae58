"""Many connections, little memory, another event loop, and nothing left when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy.certificates import Authority
from proxy.gateway import Gateway
from proxy.ledger import Ledger
from tests.proxy.frozen import Site
from tests.proxy.gateways import BIG, client, drained, head
from tests.support.waiting import HANG, STARTS, until


def test_five_hundred_connections(gateway: Gateway) -> None:
    socks = []
    try:
        for _ in range(500):
            socks.append(socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG))
        request = b"GET http://site.example/plain?a=1&b=2 HTTP/1.1\r\nHost: site.example\r\n\r\n"
        for _ in range(2):
            for sock in socks:
                sock.sendall(request)
            for sock in socks:
                assert head(sock).startswith(b"HTTP/1.1 200 ")
                assert sock.recv(5, socket.MSG_WAITALL) == b"plain"
    finally:
        for sock in socks:
            sock.close()
    assert until(lambda: gateway.stats.connections < 50)


def test_closing_ends_connections_and_threads(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    before = threading.active_count()
    with site.open() as snapshot:
        with Gateway(snapshot, authority=authority, ledger=Ledger(tmp_path / "l")) as g:
            idle = socket.create_connection(("127.0.0.1", g.port), timeout=HANG)
            with client(g) as c:
                c.get("http://site.example/")
        assert drained(idle) == b""
        idle.close()
        g.ledger.close()
    assert until(lambda: threading.active_count() <= before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", g.port), timeout=HANG)


def test_it_works_without_uvloop(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"x")
    site.add("https://site.example/big", BIG)
    with site.open():
        pass
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "import ssl, httpx\n"
        "from proxy.certificates import Authority\n"
        "from proxy.gateway import Gateway\n"
        "from snapshots.snapshot import Snapshot\n"
        "with Snapshot.open(sys.argv[1]) as s, Gateway(s, authority=Authority.load_or_create()) as g:\n"
        "    verify = ssl.create_default_context(cafile=g.ca_path)\n"
        "    with httpx.Client(proxy=g.url, verify=verify, trust_env=False, timeout=60) as c:\n"
        "        print(c.get('https://site.example/').text, len(c.get('https://site.example/big').content))\n"
    )
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "snap")], capture_output=True, env=env, timeout=STARTS
    )
    assert done.stdout.split() == [b"x", b"3000000"], done.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_large_body_is_never_whole_in_memory(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/huge", os.urandom(1 << 20) * 150)
    with site.open():
        pass
    code = (
        "import socket, sys\n"
        "from proxy.gateway import Gateway\n"
        "from snapshots.snapshot import Snapshot\n"
        "with Snapshot.open(sys.argv[1]) as snapshot, Gateway(snapshot) as g:\n"
        "    s = socket.create_connection(('127.0.0.1', g.port))\n"
        "    s.sendall(b'GET http://site.example/huge HTTP/1.0\\r\\n\\r\\n')\n"
        "    n = 0\n"
        "    while d := s.recv(1 << 18): n += len(d)\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(n, int(peak.split()[1]) >> 10)\n"
    )
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    arguments = [sys.executable, "-c", code, str(tmp_path / "snap")]
    done = subprocess.run(arguments, capture_output=True, timeout=STARTS, check=True, env=env)
    size, megabytes = map(int, done.stdout.split())
    assert size > 150 << 20
    assert megabytes < 150
