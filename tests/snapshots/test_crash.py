"""Killed at any moment: what was stored is there, and the next open mends the rest."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

RECORDING = """
import io, os, sys, threading, time
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from stillweb.snapshots.view import View

def run(name):
    number = 0
    while True:
        number += 1
        body = b"<p>%d" % number * 100
        if number % 25 == 0:
            body = io.BytesIO(os.urandom(1 << 20) * 3)
        url = f"http://example.test/{name}/{number}"
        kind = (("Content-Type", "application/octet-stream"),)
        record(writer, url, body, session=name, method="REPORT", sent=b"x" * number, headers=kind)
        time.sleep(0.002)
        if number % 7 == 0:
            writer.view(View(url, url, url, "T", timestamp="20250102030405"), {"text": b"text"})
        os.write(1, f"{url}\\n".encode())

writer = Writer.open(sys.argv[1])
for name in ("a", "b", "c"):
    threading.Thread(target=run, args=(name,)).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.03, 0.11, 0.23, 0.41, 0.7])
def test_a_killed_recording_keeps_what_was_stored(tmp_path: Path, delay: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RECORDING, str(tmp_path / "s")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    with process.stdout as out:
        first = out.readline()
        time.sleep(delay)
        process.kill()
        process.wait()
        stored = (first + out.read()).decode().split("\n")[:-1]
    with Snapshot.open(tmp_path / "s") as snapshot:  # without any mending
        found = {c.url: c for c in snapshot.captures()}
        assert set(stored) <= set(found)
        assert all(snapshot.read_request(c).method == "REPORT" for c in found.values())
    with Writer.open(tmp_path / "s") as writer:
        assert all("cut off" in repair for repair in writer.repairs)
    assert verify(tmp_path / "s") == []
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert {c.url for c in snapshot.captures()} == set(found)
        assert snapshot.notes == []


@pytest.mark.slow
def test_large_bodies_are_never_in_memory(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record

class Large:
    size = 160 << 20
    def __init__(self): self.at = 0
    def seekable(self): return True
    def seek(self, at): self.at = at
    def read(self, n):
        n = min(n, self.size - self.at)
        self.at += n
        return bytes([self.at >> 20 & 255]) * n

with Writer.open(sys.argv[1]) as writer:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    capture = record(writer, "http://example.test/", Large())
with Snapshot.open(sys.argv[1]) as snapshot:
    total = 0
    with snapshot.open_body(capture) as body:
        while piece := body.read(1 << 16):
            total += len(piece)
    assert total == Large.size
    assert snapshot.head(capture).header("content-length") == str(total)
from stillweb.snapshots.operations.verifying import verify
assert verify(sys.argv[1]) == []
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True, cwd=root)
