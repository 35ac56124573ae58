"""A client that does not read its HTTP/2 stream gets all of it in the end, and costs no memory meanwhile."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from mitmproxy.proxy.layers.http._http_h2 import SendH2Data

from stillweb.proxy.record.mitmproxy_compat import http2
from stillweb.proxy.record.mitmproxy_compat.http2 import UnreadBody
from tests.proxy.lab import Lab
from tests.proxy.recordings import recorded
from tests.support.waiting import STARTS

MEGABYTES = 100

# Reads nothing until the recorder has all of it.
PROGRAM = """
import hashlib, resource, socket, ssl, sys
from pathlib import Path
import h2.connection, h2.config, h2.events
from stillweb.proxy.wire.certificates import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer

path, state, ca, port, megabytes = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def fetch(recorder, pieces):
    captures = recorder.stats.captures
    sock = socket.create_connection(("127.0.0.1", recorder.port))
    sock.sendall(b"CONNECT demo.example:443 HTTP/1.1\\r\\n\\r\\n")
    while not sock.recv(1 << 16).endswith(b"\\r\\n\\r\\n"):
        pass
    context = ssl.create_default_context(cafile=recorder.ca_path)
    context.set_alpn_protocols(["h2"])
    sock = context.wrap_socket(sock, server_hostname="demo.example")
    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    wire.initiate_connection()
    head = {":method": "GET", ":scheme": "https", ":authority": "demo.example", ":path": f"/many?{pieces}"}
    wire.send_headers(1, list(head.items()), end_stream=True)
    sock.sendall(wire.data_to_send())
    assert recorder.wait_quiet(seconds=1, timeout=60)
    assert recorder.stats.captures == captures + 1
    digest, ended = hashlib.sha256(), False
    while not ended:
        data = sock.recv(1 << 16)
        assert data
        for event in wire.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                digest.update(event.data)
                wire.acknowledge_received_data(event.flow_controlled_length, 1)
            ended = ended or isinstance(event, h2.events.StreamEnded)
        sock.sendall(wire.data_to_send())
    sock.close()
    return digest.hexdigest()

with Writer.open(path) as writer, Recorder(writer, authority=Authority.load_or_create(Path(state)),
        upstream_ca=Path(ca), resolve={"demo.example": ("127.0.0.1", int(port))}) as recorder:
    fetch(recorder, 64)
    before = peak()
    print(fetch(recorder, int(megabytes) * 16))
    print(peak() - before)
    assert recorder.failures == []
"""


def test_a_long_body_that_is_not_read_is_not_held_in_memory(lab: Lab, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    given = [
        tmp_path / "s",
        lab.ours.directory,
        lab.ca.certificate_path,
        str(lab.secure.port),
        str(MEGABYTES),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given],
        env=environment, capture_output=True, text=True, timeout=STARTS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    digest, grown = done.stdout.split()
    assert int(grown) < 40  # MB
    last = recorded(tmp_path / "s")[-1]
    assert (len(last.body), hashlib.sha256(last.body).hexdigest()) == (MEGABYTES << 20, digest)


@pytest.mark.parametrize("full", [False, True])
def test_what_goes_in_comes_out_in_order(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "UNREAD_MEMORY", 1000)
    if full:
        written = os.pwrite

        def pwrite(fd: int, data: bytes, at: int) -> int:
            if at >= 60_000:
                raise OSError(28, "no space left")
            return written(fd, data[:7000], at)

        monkeypatch.setattr(http2.os, "pwrite", pwrite)
    draw = random.Random(7)
    kept = UnreadBody(tmp_path)
    sent = came = b""
    for turn in range(2000):
        if draw.random() < (0.6 if turn < 1500 else 0.2):
            data = draw.randbytes(draw.choice([0, 10, 900, 16384]))
            kept.append(SendH2Data(data, False))
            sent += data
        elif kept:
            chunk = kept.popleft()
            taken = draw.randrange(len(chunk.data) + 1)
            came += chunk.data[:taken]
            if taken < len(chunk.data):
                kept.appendleft(SendH2Data(chunk.data[taken:], chunk.end_stream))
    kept.append(SendH2Data(b"", True))
    chunks = []
    while kept:
        chunks.append(kept.popleft())
    assert came + b"".join(chunk.data for chunk in chunks) == sent
    assert [chunk.end_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(len(chunk.data) <= 16384 for chunk in chunks)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IndexError):
        kept.popleft()
