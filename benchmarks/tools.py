"""Speed of the tools in process: fetch, read_pdf and search over a snapshot of many pages.

    python -m benchmarks.tools [pages] [--cpu]

Makes a snapshot in a temporary directory (a minute for 100,000 pages), then prints percentiles in microseconds.
Random pages, each asked for once, so that no cache of ours helps; the bars are those of issue 5. On a machine that does other work, `--cpu` measures
the time of this thread alone.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from stillweb.harness.tools import Toolset
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.search import SearchIndex
from stillweb.snapshots.text.text import PDF, FrozenText
from stillweb.snapshots.writer import Writer

SYLLABLES = ("bar", "cor", "del", "fen", "gim", "hol", "jun", "kel", "lor", "mar", "an", "bel", "cit", "dor", "el", "fin", "gor", "hum", "ist", "ok", "ra", "tum", "us", "val")  # fmt: skip
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in ("", *SYLLABLES)]
SHARES = [
    1 / (rank + 2.7) for rank in range(len(WORDS))
]  # as words of a language are shared out (Zipf, Mandelbrot)
clock = time.thread_time if "--cpu" in sys.argv else time.perf_counter
BARS = {"fetch": (150, 1000), "read_pdf": (150, 1000), "search": (3000, None)}


def make(path: Path, pages: int) -> None:
    """Pages of about 5 kB of text, one in a hundred a PDF; the texts are written as sealing would."""
    rng = random.Random(7)
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    paragraphs = [" ".join(rng.choices(WORDS, SHARES, k=100)) for _ in range(3000)]
    with Writer.open(path) as writer:
        for n in range(pages):
            url = f"https://site{n % 50}.test/page/{n}"
            text = " ".join(rng.choices(paragraphs, k=7)) + f" unique{n}"
            pdf = n % 100 == 0
            media = "application/pdf" if pdf else "text/html; charset=utf-8"
            body = (f"<html><body><p>{text}</p></body></html>" if not pdf else f"%PDF-1.4 {n}").encode()
            begin = writer.event("s")
            capture = writer.exchange(
                Exchange(Request("GET", url), 200, "OK", (("Content-Type", media),), body, moment, "s", begin, writer.event("s"))
            )  # fmt: skip
            moment += timedelta(milliseconds=100)
            half = len(text) // 2
            parts = (text[:half], text[half:]) if pdf else None
            meta = {"digest": capture.digest, "url": url, "info": {"Title": f"T{n}"}}
            markdown = text if parts is None else "\n\n".join(parts)
            frozen = FrozenText(
                url, markdown, parts, f"Page {n}", PDF if pdf else "text/html", "bench", "1", {}, (), meta
            )
            writer.conversion(
                url, markdown, refers_to=capture, extractor="bench", version="1", options=frozen.to_record()
            )


def percentiles(times: list[float]) -> tuple[float, float]:
    """p50 and p99 in microseconds."""
    ordered = sorted(times)
    return ordered[len(ordered) // 2] * 1e6, ordered[int(len(ordered) * 0.99)] * 1e6


async def measure(snapshot: Snapshot, pages: int, calls: int) -> dict[str, tuple[float, float]]:
    """Percentiles by tool."""
    rng = random.Random(1)
    toolset = Toolset(snapshot, ["fetch", "pdf-reader"])
    session = toolset.session("bench")
    out: dict[str, tuple[float, float]] = {}
    numbers = [n for n in rng.sample(range(pages), min(pages, calls)) if n % 100]
    await session.call("fetch", {"url": "https://site1.test/page/1"})  # loads pydantic and jsonschema
    times = []
    for n in numbers:
        begin = clock()
        result = await session.call("fetch", {"url": f"https://site{n % 50}.test/page/{n}"})
        times.append(clock() - begin)
        assert not result.is_error, result.text
    out["fetch"] = percentiles(times)
    times = []
    for n in rng.sample(range(0, pages, 100), min(pages // 100, calls)):
        begin = clock()
        result = await session.call(
            "read_pdf", {"sources": [{"url": f"https://site{n % 50}.test/page/{n}", "pages": "2"}]}
        )
        times.append(clock() - begin)
        assert not result.is_error, result.text
    out["read_pdf"] = percentiles(times)
    begin = time.perf_counter()
    index = SearchIndex(snapshot.texts())
    click.echo(f"index of {len(index):,} texts: {time.perf_counter() - begin:.1f} s")
    times = []
    for _ in range(min(calls, 1000)):
        query = " ".join(rng.choices(WORDS, SHARES, k=3))
        begin = clock()
        hits = index.search(query, 10)
        times.append(clock() - begin)
        assert hits
    out["search"] = percentiles(times)
    index.close()
    return out


def main() -> int:
    """Prints a table; exit code 1 when a bar is missed."""
    pages = next((int(a) for a in sys.argv[1:] if a.isdigit()), 100_000)
    with tempfile.TemporaryDirectory(prefix="stillweb-bench-") as folder:
        path = Path(folder) / "site"
        begin = time.perf_counter()
        make(path, pages)
        click.echo(f"{pages:,} pages written: {time.perf_counter() - begin:.1f} s")
        begin = time.perf_counter()
        with Snapshot.open(path) as snapshot:
            click.echo(f"opened: {time.perf_counter() - begin:.2f} s")
            results = asyncio.run(measure(snapshot, pages, 5000))
    missed = False
    for name, (half, most) in results.items():
        bar_half, bar_most = BARS[name]
        ok = half <= bar_half and (bar_most is None or most <= bar_most)
        missed |= not ok
        click.echo(
            f"{name:10} p50 {half:7.0f} µs (bar {bar_half})  p99 {most:7.0f} µs (bar {bar_most})  {'ok' if ok else 'MISSED'}"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
