"""Figures of docs/scale.md: an index measured here, and a simulation of many machines on what was measured.

    python -m benchmarks.scale archives DIR CAPTURES    an open snapshot of so many captures, without its index
    python -m benchmarks.scale cost stillweb index DIR  its index, from the records alone: seconds and memory
    python -m benchmarks.scale cost stillweb seal DIR   texts and one file: the same
    python -m benchmarks.scale opened DIR CAPTURES      opening, look-ups and evidence there
    python -m benchmarks.scale measure [CAPTURES]    bytes a capture, opening, look-ups, range reads by a store
    PYTHONPATH=.venv-peers/ray python -m benchmarks.scale nodes [ATTEMPTS]    a run on two of Ray's nodes here; one lost
    python -m benchmarks.scale simulate              1,000 million captures, 100,000 attempts, on some nodes

The simulation draws sites by Zipf's law, keeps a cache of blocks for each node (the least recently used goes), and
gives jobs to workers as Ray does, the next one to the first that is free; a worker that is lost loses its job.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from bisect import bisect
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

from isal import isal_zlib

from stillweb.snapshots.dates import iso_date

BLOCK = 1 << 20
CAPTURES, SITES, ATTEMPTS = 1_000_000_000, 1_000_000, 100_000
SITES_OF_ATTEMPT, PAGES_OF_SITE = 5, 8  # what an attempt looks at
SITES_OF_ARCHIVES = 10_007
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
ROTATE = 1_000_000_000  # bytes of an archive file, as in snapshots/writer.py
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


def url_at(number: int) -> str:
    """Return the URL of a capture of `archives`: some thousand captures a site."""
    return f"https://site{number % SITES_OF_ARCHIVES}.example/path/{number // (10 * SITES_OF_ARCHIVES)}/page-{number}.html?id={number}"


def archives(root: Path, count: int) -> None:
    """Write WARC files of so many captures with small bodies, as a recorder writes them; one in 20 is a revisit.

    The records are put together as text, 50 times as fast as by `Writer`.
    """
    (root / "archive").mkdir(parents=True)
    made = number = 0
    while made < count:
        with open(root / "archive" / f"data-{number:05d}.warc.gz", "wb") as file:
            while made < count and file.tell() < ROTATE:
                file.write(b"".join(_pair(one) for one in range(made, min(made + 1000, count))))
                made = min(made + 1000, count)
        number += 1


def _pair(number: int) -> bytes:
    """Return request and answer as two gzip members."""
    moment = BEGIN + timedelta(milliseconds=5 * number)
    date = iso_date(moment)
    revisit = number % 20 == 19
    page = number - 1 if revisit else number
    url = url_at(page)
    body = b"<!doctype html><title>Page %d</title><p>The page %d of a site says little." % (page, page)
    asked = (
        f"GET /{url.split('/', 3)[3]} HTTP/1.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\n\r\n"
    ).encode()
    told = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    told += b"" if revisit else body
    ids = [f"<urn:uuid:{number:08x}-000{one}-8000-8000-000000000000>" for one in (1, 2)]
    ours = f"WARC-Stillweb-Session: session-{number // 60}\r\nWARC-Stillweb-Events: {number % 60 * 2 + 1}-{number % 60 * 2 + 2}\r\n"
    about = (
        "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest\r\n"
        f"WARC-Refers-To-Target-URI: {url}\r\nWARC-Refers-To-Date: {iso_date(moment - timedelta(milliseconds=5))}\r\n"
        if revisit
        else ""
    )
    heads = (
        f"WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: {ids[0]}\r\nWARC-Date: {date}\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Block-Digest: {_digest(asked)}\r\nWARC-Payload-Digest: {_digest(b'')}\r\n"
        f"{ours}Content-Type: application/http; msgtype=request\r\nContent-Length: {len(asked)}\r\n\r\n",
        f"WARC/1.1\r\nWARC-Type: {'revisit' if revisit else 'response'}\r\nWARC-Record-ID: {ids[1]}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {url}\r\nWARC-Concurrent-To: {ids[0]}\r\nWARC-Protocol: http/1.1\r\n"
        f"WARC-Payload-Digest: {_digest(body)}\r\nWARC-Block-Digest: {_digest(told)}\r\n{about}{ours}"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(told)}\r\n\r\n",
    )
    blocks = zip(heads, (asked, told), strict=True)
    return b"".join(isal_zlib.compress(h.encode() + b + b"\r\n\r\n", 1, 31) for h, b in blocks)


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def cost(command: list[str]) -> None:
    """Run a command; print its seconds and its memory: a page that several processes share counts once."""
    from benchmarks.servers import memory

    begin, most = time.perf_counter(), 0.0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            most = max(most, memory(process.pid))
            time.sleep(1)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(
        f"exit code {process.returncode}: {spent.ru_utime + spent.ru_stime:.0f} s of the processor in {time.perf_counter() - begin:.0f} s, "
        f"at most {spent.ru_maxrss / 1024:.0f} MB in one process, {most:.0f} MB in all"
    )


def opened(root: Path, count: int) -> None:
    """Open an indexed snapshot of `archives`, look captures up, and learn the evidence of some sites."""
    from benchmarks.environments import memory
    from stillweb.snapshots.evidence.matcher import Matcher
    from stillweb.snapshots.identity.keys import request_key
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot

    chance = random.Random(1)
    pages = [number - number % 20 for number in (chance.randrange(count) for _ in range(1000))]
    others = [number + SITES_OF_ARCHIVES * 20 for number in pages[:200]]
    again = [Request("GET", url_at(number)) for number in others if number < count]
    if not again:
        sys.exit(
            f"opened: no site has two pages among {count} captures. Make {SITES_OF_ARCHIVES * 40} or more."
        )
    urls = [url_at(number) for number in pages]
    keys = [request_key(Request("GET", url)).urlkey for url in urls]
    begin, before = time.perf_counter(), memory()
    with Snapshot.open(root) as snapshot:
        say(
            f"opened in {(time.perf_counter() - begin) * 1000:.0f} ms, {memory() - before:.1f} MB more in memory"
        )
        say(f"place in the index: {_taken(snapshot.candidates, keys)}")
        matcher, before = Matcher(snapshot), memory()
        asked = [Request("GET", url) for url in urls[:200]]
        say(f"first request of a site: {_taken(matcher.lookup, asked)}")
        grown, learnt = memory() - before, sum(one.size for one in matcher._sites.values())
        say(f"evidence of {len(matcher._sites)} sites, {learnt} captures: {grown:.0f} MB")
        say(f"another request of these sites: {_taken(matcher.lookup, again)}")
        say(
            f"response read and checked: {_taken(snapshot.read, [snapshot.candidates(key)[0] for key in keys])}"
        )
        say(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB in memory")


def _taken(ask: Callable[[Any], object], questions: list[Any]) -> str:
    took = []
    for question in questions:
        begin = time.perf_counter()
        assert ask(question)
        took.append((time.perf_counter() - begin) * 1000)
    took.sort()
    return f"p50 {took[len(took) // 2]:.3f} ms, p99 {took[len(took) * 99 // 100]:.2f} ms"


def nodes(attempts: int) -> None:
    """Run attempts that answer at once on a Ray cluster of two nodes on this machine, then lose one in the middle.

    A head without cores gives the jobs to two nodes of one core each.
    """
    import ray
    from ray.cluster_utils import Cluster

    import stillweb
    from stillweb.harness.task import Task
    from tests.harness import small_site

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = small_site.make(folder / "site", 20)
        agent = folder / "agent.yaml"
        agent.write_text(
            "agent: script\ndefault:\n  steps:\n    - {call: fetch, with: {url: 'https://a.test/0'}}\n  answer: A page\n"
        )
        task = Task("one", "?", "A page")
        for kind in ("two nodes", "one of them lost"):
            cluster = Cluster(
                initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
            )
            last = [cluster.add_node(num_cpus=1) for _ in range(2)][1]
            os.environ["RAY_ADDRESS"] = cluster.address
            traces = folder / kind / "traces"

            def lose(traces: Path = traces, cluster: Any = cluster, node: Any = last) -> None:
                while len(list(traces.glob("*.jsonl"))) < attempts // 3:
                    time.sleep(0.05)
                cluster.remove_node(node, allow_graceful=False)

            thread = threading.Thread(target=lose)
            if kind != "two nodes":
                thread.start()
            begin = time.perf_counter()
            run = stillweb.run(
                tasks=[task],
                agent=f"script:{agent}",
                snapshot=site,
                out=folder / kind,
                epochs=attempts,
                engine="ray",
                parallel=2,
            )
            took = time.perf_counter() - begin
            moments = sorted(path.stat().st_mtime for path in traces.glob("*.jsonl"))
            steps = [b - a for a, b in itertools.pairwise(moments)]
            say(
                f"{kind}: {attempts} attempts in {took:.1f} s, {run.made} made, {len(run.summary.failed)} failed; from the first to the last "
                f"{moments[-1] - moments[0]:.1f} s, {len(steps) / (moments[-1] - moments[0]):.2f} a second; longest pause {max(steps):.1f} s"
            )
            if thread.ident:
                thread.join()
            ray.shutdown()
            cluster.shutdown()


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
    elif sys.argv[1:2] == ["archives"]:
        archives(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["cost"]:
        cost(sys.argv[2:])
    elif sys.argv[1:2] == ["nodes"]:
        nodes(int((sys.argv[2:] or ["60"])[0]))
    elif sys.argv[1:2] == ["opened"]:
        opened(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        simulate()
        say("the same, with blocks deflated:")
        simulate(deflated=0.25)
