"""Speed of `stillweb view`: 10,000 attempts and 100,000 captures. Bars: issue 35.

    python -m benchmarks.viewing
    python -m benchmarks.viewing --hour        memory over an hour of clicking, which 20,000 requests stand for

The run is one scripted attempt, repeated as 2,500 tasks of four attempts. "Opening" is from the command's start to the
first whole page over HTTP; "pages" are the slowest page of a walk: asked for the first time, and the middle of five more. Memory is what the process
has more after 500 pages of that walk than after the first 100. An hour is 20,000 clicks on links, frames and pictures of the
pages themselves, with searches between them, drawn by a fixed seed, over both and over the demo's runs and snapshot. Its
memory is the mean of each third of the hour.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import unescape
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

from benchmarks.archives import many
from benchmarks.bench import Bench, Row
from stillweb.harness.demo.walk import walk
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task, TaskSet
from stillweb.snapshots.snapshot import Snapshot

TASKS, EPOCHS, CAPTURES = 2500, 4, 100_000
OPENING, PAGE = 1.0, 200.0  # seconds, milliseconds
STEPS = 12
SCRIPT = {"agent": "script", "default": {"steps": [{"set": {"a": "x" * 2000}}] * STEPS, "answer": "7|3900"}}
RUBRIC = {"columns": ["id", "mass"], "row_key": ["id"], "fields": {"mass": {"type": "integer"}}}


def big_run(folder: Path) -> Path:
    """A run of 10,000 attempts."""
    (folder / "agent.yaml").write_text(json.dumps(SCRIPT))
    task = Task("t", "Which birds?", "7|3900\n9|3700", "table", options={"rubric": RUBRIC})
    files = start_run(folder / "run", Settings(agent=str(folder / "agent.yaml"), contracts=()), [task])
    run_attempts(files.path, display=SilentDisplay())
    lines = [json.loads(line) for line in files.trace_path("t", 1).read_text().splitlines()]
    rest = "".join(json.dumps(line) + "\n" for line in lines[1:])
    settings, stands_on = files.manifest()
    big = RunFiles(folder / "many")
    big.traces.mkdir(parents=True)
    tasks = tuple(replace(task, id=f"task-{number:05d}") for number in range(TASKS))
    (big.path / "tasks.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in tasks))
    big.write_manifest(replace(settings, epochs=EPOCHS), {**stands_on, "tasks": TaskSet("run", tasks).digest})
    for one in tasks:
        for epoch in range(1, EPOCHS + 1):
            header = {**lines[0], "task": {**lines[0]["task"], "id": one.id}, "attempt": epoch}
            big.trace_path(one.id, epoch).write_text(json.dumps(header) + "\n" + rest)
    return big.path


@dataclass
class Viewer:
    """A running `stillweb view`: its address, its process, and the moment of its start."""

    url: str
    pid: int
    began: float

    def get(self, path: str) -> tuple[float, str]:
        """Milliseconds that a page takes, and its text."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, text[:500]
        return (time.perf_counter() - began) * 1e3, text

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def viewing(*paths: Path, cache: Path) -> Iterator[Viewer]:
    """Runs the command."""
    words = [
        sys.executable,
        "-c",
        "from stillweb.harness.cli import run; run()",
        "view",
        *map(str, paths),
        "--no-open",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "STILLWEB_CACHE": str(cache)}
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield Viewer(process.stdout.readline().strip(), process.pid, began)
    finally:
        process.terminate()
        process.wait()


def _opened(path: Path, cache: Path, first: str) -> float:
    with viewing(path, cache=cache) as viewer:
        viewer.get(first)
        return time.perf_counter() - viewer.began


def _pages(viewer: Viewer, walk: list[str]) -> list[tuple[float, str]]:
    """Return the slowest page of a walk and which it is: when first asked for, and of each the middle of five."""
    first = [(viewer.get(path)[0], path) for path in walk]
    found = [(statistics.median(viewer.get(path)[0] for _ in range(5)), path) for path in walk]
    return [max(first), max(found)]


def measure(work: Path, name: str, path: Path, first: str, walk: list[str]) -> list[Row]:
    """Opening for the first time and again, the slowest page, and memory over a walk."""
    cache = work / f"cache-{name.replace(' ', '-')}"
    cache.mkdir()
    cold, again = (_opened(path, cache, first) for _ in range(2))
    with viewing(path, cache=cache) as viewer:
        until = time.perf_counter() + 60
        while "still being read" in viewer.get(first)[1] and time.perf_counter() < until:
            time.sleep(0.1)
        (begun, at), (slowest, where) = _pages(viewer, walk)
        for number in range(100):
            viewer.get(walk[number % len(walk)])
        before = viewer.memory
        for number in range(400):
            viewer.get(walk[number % len(walk)])
        more = viewer.memory - before
    return [
        Row(f"{name}: opening, the first time", f"{cold:.2f} s", bar=f"< {OPENING:g} s", held=cold < OPENING),
        Row(f"{name}: opening again", f"{again:.2f} s", bar=f"< {OPENING:g} s", held=again < OPENING),
        Row(f"{name}: slowest page, the first time", f"{begun:.0f} ms", bar=f"< {PAGE:g} ms", held=begun < PAGE, note=at),
        Row(f"{name}: slowest page", f"{slowest:.0f} ms", bar=f"< {PAGE:g} ms", held=slowest < PAGE, note=where),
        Row(f"{name}: memory after 400 pages more", f"{more:+.1f} MB"),
    ]  # fmt: skip


def rows(work: Path) -> list[Row]:
    """All rows."""
    run = "/run/many"
    of_run = [
        *(run, f"{run}?page=20", f"{run}?by=attempt&show=wrong&sort=-score", f"{run}?q=00042", f"{run}?sort=tokens&page=3"),
        *(f"{run}/attempt/task-00042.2", f"{run}/agreement", "/"),
    ]  # fmt: skip
    site = "/snapshot/site"
    with Snapshot.open(many(work / "site", CAPTURES)) as snapshot:
        every = islice(snapshot.captures(), 7, None, CAPTURES // 3)
        captures = [f"{site}/capture/{one.offset}?{urlencode({'file': one.filename})}" for one in every]
    of_site = [
        site,
        f"{site}/captures",
        f"{site}/captures?q=00042",
        f"{site}/captures?page=500",
        f"{site}/views",
        *captures,
        "/",
    ]
    return [
        *measure(work, "10,000 attempts", big_run(work), run, of_run),
        *measure(work, "100,000 captures", work / "site", site, of_site),
    ]


def viewed(bench: Bench) -> list[Row]:
    """A large run and a large snapshot in `stillweb view`."""
    with tempfile.TemporaryDirectory(dir=bench.work) as folder:
        return rows(Path(folder))


CLICKS, LOOKED = 20_000, 500  # clicks, and after how many the memory is looked at
MORE = 1.05  # memory of the last third of the hour, by that of the first
_LINK = re.compile(r'(?:href|src)="([^"#]+)')
_WORDS = ("00042", "penguin", "2012", "electricity", "bird", "task-01", "wrong", "page")


def clicks(viewer: Viewer, count: int, kinds: Counter[str]) -> Iterator[int]:
    """Follow links at random, with a search at each twentieth click; yield the number of each answer."""
    draw = random.Random(35)
    connections: dict[str, http.client.HTTPConnection] = {}
    home, at, links = viewer.url.rstrip("/"), "/", [""]
    for number in range(count):
        link = unescape(draw.choice(links)) if links and number % 50 else "/"
        if number % 20 == 10:
            link = f"{at.partition('?')[0]}?q={draw.choice(_WORDS)}&page={draw.randrange(1, 40)}"
        url = urljoin(f"{home}{at}", link)
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname != "127.0.0.1":
            continue
        connection = connections.setdefault(
            parts.netloc, http.client.HTTPConnection(parts.netloc, timeout=60)
        )
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status in (200, 404), (url, answer.status, body[:300])
        kinds["/".join(parts.path.split("/")[1:5:2])] += 1
        if parts.netloc == urlsplit(home).netloc and answer.headers["Content-Type"].startswith("text/html"):
            at, links = path, _LINK.findall(body.decode())
        yield number


def hour(work: Path) -> list[Row]:
    """Memory over an hour of clicking."""
    demo = work / "demo"
    walk(demo)
    paths = [demo / "run", demo / "run-again", big_run(work), many(work / "site", CAPTURES)]
    kinds: Counter[str] = Counter()
    found: list[float] = []
    with viewing(*paths, cache=work) as viewer:
        for number in clicks(viewer, CLICKS, kinds):
            if number % LOOKED == LOOKED - 1:
                found.append(viewer.memory)
                print(number + 1, f"{viewer.memory:.1f} MB", flush=True)  # noqa: T201
    third = len(found) // 3
    first, last = statistics.mean(found[:third]), statistics.mean(found[-third:])
    note = ", ".join(f"{count} {kind or 'first page'}" for kind, count in kinds.most_common())
    return [
        Row(
            f"memory in the first and the last third of {CLICKS:,} clicks",
            f"{first:.0f} MB, then {last:.0f} MB",
            bar=f"flat: < {MORE - 1:.0%} more",
            held=last < MORE * first,
            note=note,
        )
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for row in hour(Path(folder)) if "--hour" in sys.argv else rows(Path(folder)):
            print(row.name, row.ours, row.bar, row.note, "" if row.held is not False else "NOT HELD")  # noqa: T201
