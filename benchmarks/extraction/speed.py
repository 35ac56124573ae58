"""Extraction at sealing on all cores beside trafilatura alone on one.

    python -m benchmarks.extraction.speed [pages]

The pages are those of the distribution's documentation packages (benchmarks/corpus.py). Both work in turns on the same pages.
Issue 5 asks for 1.8 times trafilatura's pages a second. Where the machine does other work, the wall clock tells little:
the CPU time of all processes says what the cores would give if they were free.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from benchmarks.corpus import find
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.freezing import Job, extract_all, jobs
from stillweb.snapshots.text.text import OPTIONS, FrozenText
from stillweb.snapshots.writer import Writer

HTML = (("Content-Type", "text/html; charset=utf-8"),)
ALONE = """
import sys, trafilatura
from stillweb.snapshots.text.text import OPTIONS
found = 0
for path in sys.stdin.read().splitlines():
    with open(path, encoding="utf-8", errors="replace") as file:
        found += bool(trafilatura.extract(file.read(), **OPTIONS))
sys.exit(found == 0)
"""
OURS = """
import sys
from benchmarks.extraction.speed import freeze
sys.exit(freeze(sys.argv[1]) == 0)
"""


def make(path: Path, pages: list[Path]) -> None:
    """A snapshot of the pages, texts not frozen."""
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    with Writer.open(path, keep_text=False) as writer:
        for number, page in enumerate(pages):
            request = Request("GET", f"https://docs.test/{number}/{page.name}")
            begin = writer.event("s")
            moment += timedelta(seconds=1)
            writer.exchange(
                Exchange(request, 200, "OK", HTML, page.read_bytes(), moment, "s", begin, writer.event("s"))
            )


def freeze(path: str) -> int:
    """Extracts all texts of a snapshot as sealing does, and counts them."""
    with Snapshot.open(path) as snapshot:
        todo = list(jobs(snapshot))
        made: list[tuple[Job, FrozenText | None]] = list(extract_all(snapshot, todo, len(todo)))
    return sum(text is not None and bool(text.markdown) for _, text in made)


def took(command: list[str], given: str = "") -> tuple[float, float]:
    """Wall and CPU seconds of a process and all that it started."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, input=given, text=True, check=True, cwd=Path(__file__).parents[2])
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, used


@click.command()
@click.argument("pages", default=400)
@click.option("--turns", default=3)
def main(pages: int, turns: int) -> None:
    """Prints both and the ratios."""
    sources = [path for path in find(20 * pages, 2_000, 1 << 19) if path.suffix == ".html"][:pages]
    cores = os.cpu_count() or 1
    assert OPTIONS
    with tempfile.TemporaryDirectory(prefix="stillweb-bench-") as folder:
        make(Path(folder, "site"), sources)
        start = min(took([sys.executable, "-c", "import trafilatura"])[1] for _ in range(2))
        walls, efforts = [], []
        for _ in range(turns):
            alone = took([sys.executable, "-c", ALONE], "\n".join(map(str, sources)))
            ours = took([sys.executable, "-c", OURS, f"{folder}/site"])
            walls.append(alone[0] / ours[0])
            efforts.append((alone[1] - start) / (ours[1] - start))
            click.echo(
                f"trafilatura alone {alone[0]:.1f} s ({alone[1]:.1f} s CPU), at sealing {ours[0]:.1f} s ({ours[1]:.1f} s CPU)"
            )
    wall, effort = statistics.median(walls), statistics.median(efforts)
    click.echo(
        f"{len(sources)} pages: {wall:.2f} × as quick; for each CPU second {effort:.2f} ×, so {effort * cores:.2f} × on {cores} free cores (bar 1.8)"
    )


if __name__ == "__main__":
    main()
