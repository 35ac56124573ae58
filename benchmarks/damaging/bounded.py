"""Cases in processes of their own, bounded in time and memory: what crashes, hangs or eats memory is seen, and ends nothing."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, TypeVar

SECONDS = 60  # of a case, on a machine that does other things too
MEMORY = 1 << 30  # bytes of address space beyond what the parent has

Job = TypeVar("Job")
Found = dict[str, int]  # kinds of fault, and how often


def bounded(
    jobs: Iterable[Job], do: Callable[[Job], Found], at_once: int = 2, seconds: float | None = None
) -> Iterator[tuple[Job, Found]]:
    """Yield what each job found, as they end; one that takes more than `seconds` is a hang."""
    waiting = iter(jobs)
    with DefaultSelector() as running:
        while True:
            while len(running.get_map()) < at_once and (job := next(waiting, None)) is not None:
                end, pid = _begin(do, job)
                running.register(end, EVENT_READ, (job, pid, time.monotonic(), bytearray()))
            if not running.get_map():
                return
            for key, _ in running.select(1.0):
                job, pid, _, said = key.data
                if data := os.read(key.fd, 1 << 16):
                    said += data
                    continue
                running.unregister(key.fd)
                os.close(key.fd)
                yield job, _ended(os.waitpid(pid, 0)[1], bytes(said))
            for key in list(running.get_map().values()):
                if time.monotonic() - key.data[2] > (seconds or SECONDS):
                    os.kill(key.data[1], signal.SIGKILL)


def _begin(do: Callable[[Job], Found], job: Job) -> tuple[int, int]:
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return out, pid
    os.close(out)
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        try:
            found: Any = do(job)
        except MemoryError:
            found = {"memory: " + traceback.format_exc().strip().splitlines()[-3].strip(): 1}
        except BaseException as error:  # noqa: BLE001 -- that is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            found = {f"crash: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})": 1}
        data = json.dumps(found).encode()
        while data:
            data = data[os.write(into, data) :]
    finally:
        os._exit(0)


def _ended(status: int, said: bytes) -> Found:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"hang: no end": 1} if number == signal.SIGKILL else {f"crash: signal {number}": 1}
    found: Found = json.loads(said)
    return found
