"""SIGKILL at random moments under load: what the recorder counted as written is there, and the archive is sound.

`STILLWEB_KILLS=50` for the full number, and then also for the promise that a second is enough: by the clock, which says
nothing on a machine that is busy with other things.
"""

import hashlib
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, until

KILLS = int(os.environ.get("STILLWEB_KILLS", "4"))
TIMED = "STILLWEB_KILLS" in os.environ
LOADS = 4
PROMISE = 1.0  # seconds after delivery from which on an exchange survives

# Imports once, then forks a recorder for each line it reads: the snapshot's directory.
HOST = """
import os, sys, time
from pathlib import Path
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer
for line in sys.stdin:
    if os.fork() == 0:
        authority = Authority.load_or_create(Path(sys.argv[1]))
        writer = Writer.open(line.strip())
        told = lambda stats: os.write(1, b"written %d\\n" % stats.captures)
        recorder = Recorder(writer, authority=authority, on_status=told).start()
        os.write(1, b"ready %d %d\\n" % (os.getpid(), recorder.port))
        time.sleep(3600)
    os.wait()
    os.write(1, b"gone\\n")
"""


def content(number: int, size: int) -> bytes:
    seed = hashlib.sha256(b"%d" % number).digest()
    return (seed * (size // 32 + 1))[:size]


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 50_000):
        yield data[start : start + 50_000]


def answer(asked: Asked) -> Answer:
    number, size = (int(part) for part in asked.path.strip("/").split("-"))
    data = content(number, size)
    return Answer(body=data if number % 3 else in_pieces(data))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    state = tmp_path_factory.mktemp("state")
    Authority.load_or_create(state)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(state)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)  # and the recorder of a test that failed


def said(host: subprocess.Popen[str], what: str) -> list[int]:
    """The numbers of the next line that begins so; a recorder tells what it has written whenever it likes."""
    assert host.stdout is not None
    for line in host.stdout:
        word, *numbers = line.split()
        if word == what:
            return [int(number) for number in numbers]
    raise AssertionError("the host has ended")


def load(
    port: int, origin: str, worker: int, delivered: list[tuple[float, str]], rounds: random.Random
) -> None:
    """Asks until the proxy is gone; notes when each answer had come whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    number = worker * 1_000_000
    try:
        while True:
            number += 1
            size = rounds.choice([10, 500, 5_000, 40_000, 200_000, 3_000_000 if number % 10 == 0 else 1_000])
            url = f"{origin}/{number}-{size}"
            connection.request("GET", url)
            data = connection.getresponse().read()
            if len(data) != size:
                return
            delivered.append((time.monotonic(), url))
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_kill(
    host: subprocess.Popen[str], tmp_path: Path, number: int, record_property: Callable[[str, object], None]
) -> None:
    rounds = random.Random(number)
    path = tmp_path / "snapshot"
    assert host.stdin is not None
    with Origin(answer) as origin:
        host.stdin.write(f"{path}\n")
        host.stdin.flush()
        pid, port = said(host, "ready")
        delivered: list[tuple[float, str]] = []
        workers = [
            threading.Thread(
                target=load, args=(port, origin.url, worker, delivered, random.Random(rounds.random()))
            )
            for worker in range(LOADS)
        ]
        for worker in workers:
            worker.start()
        assert until(lambda: len(delivered) >= 20)
        promised = [url for _, url in delivered]
        # each load may have had one more answer that was not whole yet, written before its last whole one
        while said(host, "written")[0] < len(promised) + LOADS:
            continue
        time.sleep(rounds.uniform(0, PROMISE + 0.3) + PROMISE * TIMED)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        said(host, "gone")
        for worker in workers:
            worker.join(HANG)
    with Writer.open(path) as writer:
        repairs = writer.repairs
    found = {one.url: one for one in recorded(path)}
    if TIMED:
        promised = [url for moment, url in delivered if moment <= killed - PROMISE]
    assert [url for url in promised if url not in found] == []
    record_property("delivered", len(delivered))
    record_property("promised", len(promised))
    record_property("delivered later and lost", sum(url not in found for _, url in delivered))
    record_property("repairs", repairs)
    for url, one in found.items():
        key, size = (int(part) for part in url.rpartition("/")[2].split("-"))
        assert one.kind == "revisit" or one.body == content(key, size)
    assert verify(path) == []
