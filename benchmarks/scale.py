"""Figures of docs/scale.md: an index measured here, and a simulation of many machines on what was measured.

    python -m benchmarks.scale measure [CAPTURES]    bytes a capture, opening, look-ups, range reads by a store
    python -m benchmarks.scale simulate              1,000 million captures, 100,000 attempts, on some nodes

The simulation draws sites by Zipf's law, keeps a cache of blocks for each node (the least recently used goes), and
gives jobs to workers as Ray does, the next one to the first that is free; a worker that is lost loses its job.
"""

from __future__ import annotations

import heapq
import os
import random
import resource
import sys
import tempfile
import time
import zlib
from bisect import bisect
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path

BLOCK = 1 << 20
CAPTURES, SITES, ATTEMPTS = 1_000_000_000, 1_000_000, 100_000
SITES_OF_ATTEMPT, PAGES_OF_SITE = 5, 8  # what an attempt looks at
CACHE = 16 << 30  # bytes of a node, as in snapshots/remote.py


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def measure(count: int) -> None:
    """Make an index of so many lines, look it up here and in a store that is read by ranges."""
    import fsspec

    from benchmarks.large import sealed, url_of
    from stillweb.snapshots.identity.keys import request_key
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.warc.container import INDEX

    with tempfile.TemporaryDirectory() as folder:
        os.environ["STILLWEB_CACHE"] = folder + "/cache"
        path = sealed(Path(folder) / "large.wacz", count)
        begin = time.perf_counter()
        with Snapshot.open(path) as snapshot:
            opened = time.perf_counter() - begin
            container = snapshot._layers[0].container
            size, steps = container.members[INDEX].size, container.members["indexes/steps.txt"].size
            part = container.members[INDEX].read(size // 2, BLOCK)
            chance = random.Random(1)
            urls = [url_of(chance.randrange(count)) for _ in range(1000)]
            asked = [request_key(Request("GET", url)).urlkey for url in urls]
            begin = time.perf_counter()
            assert all(snapshot.candidates(key) for key in asked)
            looked = (time.perf_counter() - begin) / len(asked)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(
            f"{count} captures: index {size / 1e6:.0f} MB, {size / count:.0f} bytes each, steps {steps / 1e6:.2f} MB; deflated by "
            f"blocks of 1 MiB to {len(zlib.compress(part, 6)) / len(part):.2f}; opened in {opened * 1000:.0f} ms; "
            f"place in the index in {looked * 1e6:.0f} µs; at most {used:.0f} MB in memory"
        )
        store = fsspec.filesystem("memory")
        store.put_file(str(path), "/large.wacz")
        begin = time.perf_counter()
        with Snapshot.open("memory://large.wacz") as snapshot:
            opened = time.perf_counter() - begin
            blocks = len(list(Path(folder, "cache", "blocks").glob("*/*")))
            assert all(snapshot.candidates(key) for key in asked[:100])
        more = len(list(Path(folder, "cache", "blocks").glob("*/*"))) - blocks
        say(
            f"in a store: opened in {opened * 1000:.0f} ms by {blocks} blocks of 1 MiB; 100 look-ups read {more} more"
        )


def simulate(bytes_of_capture: float = 600, deflated: float = 1.0) -> None:
    """Print the reads of attempts on a large index, and the time of jobs on workers that may be lost."""
    whole = CAPTURES * bytes_of_capture * deflated
    blocks = int(whole / BLOCK)
    for nodes in (1, 2, 16, 100):
        reads, asked, first = _reads(nodes, blocks)
        say(
            f"{nodes} nodes, index {whole / 1e9:.0f} GB: {asked} look-ups, {reads} range reads ({reads * BLOCK / 1e9:.0f} GB), "
            f"{reads / ATTEMPTS:.1f} an attempt, {first:.1f} in a node's first 1,000"
        )
    for workers, lost in ((2, 0.0), (2, 1.0), (16, 1.0), (100, 1.0), (1000, 1.0)):
        took, ideal, redone = _jobs(workers, lost)
        say(
            f"{workers} workers, {lost:g} losses a worker and day: {took / 3600:.1f} h, {took / ideal:.2f} of the ideal, "
            f"{redone:.2%} of the work done twice"
        )


def _reads(nodes: int, blocks: int, seed: int = 7) -> tuple[int, int, float]:
    """Return range reads and look-ups of all attempts, and the reads of an attempt while caches are cold."""
    chance = random.Random(seed)
    weights = list(accumulate(1 / rank for rank in range(1, SITES + 1)))
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(nodes)]
    reads = asked = first = early = 0
    for number in range(ATTEMPTS):
        cache = caches[number % nodes]
        before = reads
        for _ in range(SITES_OF_ATTEMPT):
            site = bisect(weights, chance.random() * weights[-1])
            begin = (
                (site * 2654435761) % SITES * blocks // SITES
            )  # the popular ones lie anywhere in the order
            span = max(1, blocks // SITES + 1)
            for _ in range(PAGES_OF_SITE):
                block = begin + chance.randrange(span)
                asked += 1
                if block in cache:
                    cache.move_to_end(block)
                    continue
                reads += 1
                cache[block] = None
                if len(cache) > CACHE // BLOCK:
                    cache.popitem(last=False)
        if number < 1000 * nodes:
            first += reads - before
            early += 1
    return reads, asked, first / early


def _jobs(workers: int, losses: float, seed: int = 7) -> tuple[float, float, float]:
    """Return seconds until all attempts are done, those of a perfect division, and the part that was done twice.

    An attempt lasts 60 seconds in the median, and one in twenty five times as long or longer.
    """
    chance = random.Random(seed)
    jobs = [chance.lognormvariate(4.09, 0.98) for _ in range(ATTEMPTS)]
    total = sum(jobs)
    free = [0.0] * workers
    waiting = list(reversed(jobs))
    twice = done = 0.0
    while waiting:
        job, now = waiting.pop(), heapq.heappop(free)
        dies = chance.expovariate(losses / 86_400) if losses else float("inf")
        if dies < job:
            twice += dies
            waiting.append(job)
            heapq.heappush(free, now + dies + 60)  # another worker takes its place in a minute
            continue
        done = max(done, now + job)
        heapq.heappush(free, now + job)
    return done, total / workers, twice / total


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int((sys.argv[2:] or ["1000000"])[0]))
    else:
        simulate()
        say("the same, with blocks deflated:")
        simulate(deflated=0.25)
