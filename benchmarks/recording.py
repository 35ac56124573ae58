"""Rows of recording: against mitmdump that keeps nothing, and against warcprox, whose playback comes after it."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack

from benchmarks import corpus, load, peers, servers
from benchmarks.bench import Bench, NotRun, Row
from benchmarks.load import Mismatch
from benchmarks.serving import beside, not_run

FASTEST = 2000  # pages a second: more than any of them records here
PLAYED = 100  # pages that warcprox records for its playback
MITMDUMP = "recording, real mix, 8 connections, against mitmdump with nothing attached"
WARCPROX = "recording, real mix, 8 connections, against warcprox"


def recording(bench: Bench) -> list[Row]:
    """Measure all three in turns, over pages that none of them has seen before."""
    rounds, seconds = (3, 1.5) if bench.quick else (7, 2.0)
    root = bench.work / "unseen"
    urls = corpus.unique(
        root, bench.work / "mixed", bench.mixed, 8 * (rounds + 1) * int(FASTEST / 8 * seconds)
    )
    rows: list[Row] = []
    with ExitStack() as up:
        origin = up.enter_context(servers.nginx(bench.work, root, host=servers.ORIGIN))
        ours = up.enter_context(servers.recorder(bench.work, bench.work / "recorded.snapshot"))
        ours.base = origin.base
        running = [ours, up.enter_context(peers.bare_mitmdump(bench.work, origin.base, urls[0][0]))]
        missing: Exception | None = None
        try:
            running.append(up.enter_context(peers.warcprox(bench.work, origin.base, urls[0][0]))[0])
        except (NotRun, RuntimeError, OSError) as error:
            missing = error
        step = len(urls) // 8 // (rounds + 1)
        for server in running:  # imports, certificates
            bench.load(server, urls, warm=False, seconds=0.5, start=rounds * step)
        found = bench.turns(running, urls, rounds, seconds=seconds, advance=step)
        disk = sum(p.stat().st_size for p in (bench.work / "recorded.snapshot" / "archive").iterdir())
    if any(
        r.requests > 7 * step for turns in found.values() for r in turns.loads
    ):  # eight clients, a step each
        raise RuntimeError("pages were asked for twice, and recorded as revisits: more of them are needed")
    mine = found[ours.name]
    done = sum(r.requests for r in mine.loads)
    note = f"{done} pages in {disk / 1e6:.0f} MB of WARC, redacted; {mine.errors} errors"
    for server, name, bar in zip(running[1:], (MITMDUMP, WARCPROX), (0.9, 2.0), strict=False):
        ratio = mine.against(found[server.name])
        held = ratio is not None and ratio >= bar and not mine.errors
        rows.append(Row(name, mine.told(), found[server.name].told(), ratio, f"≥ {bar:g}", held, note))
    if missing is not None:
        rows.append(not_run(WARCPROX, "≥ 2", missing))
    shutil.rmtree(root)
    return rows


def playback(bench: Bench) -> list[Row]:
    """warcprox's instant playback of what it has recorded."""
    urls = bench.small[:PLAYED]
    with (
        servers.nginx(bench.work, bench.work / "small", host=servers.ORIGIN) as origin,
        servers.gateway(bench.work, bench.work / "small.snapshot") as ours,
    ):
        bench.load(ours, "small")
        try:
            with peers.warcprox(bench.work, origin.base, urls[0][0]) as (recorder, replaying):
                for path, _ in urls[1:]:
                    load.keeps_alive(path=path, **recorder.target(), times=1)  # type: ignore[arg-type]
                _until_played(replaying, urls)
                replaying.fresh = not load.keeps_alive(path=urls[0][0], **replaying.target())  # type: ignore[arg-type]
                replaying.alters = True
                whole, bench.small = bench.small, urls
                try:
                    return [beside(bench, ours, replaying, 45)]
                finally:
                    bench.small = whole
        except (NotRun, RuntimeError, OSError) as error:
            return [not_run("small pages, 8 connections, against warcprox playback", "≥ 45", error)]


def _until_played(server: servers.Server, urls: list[tuple[str, int]]) -> None:
    """Wait until the recorder, which writes behind, has written everything."""
    end = time.monotonic() + 60
    left = [path for path, _ in urls]
    last = ""
    while left and time.monotonic() < end:
        try:
            load.keeps_alive(path=left[-1], **server.target(), times=1)  # type: ignore[arg-type]
            left.pop()
        except (OSError, Mismatch) as error:
            last = str(error)
            time.sleep(0.5)
    if left:
        raise NotRun(f"its playback has not what it recorded: {last}")
