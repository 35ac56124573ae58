"""Rows of archives: looking up in large indexes, indexing, sealing."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from isal import isal_zlib

from benchmarks import large, peers, servers
from benchmarks.bench import Bench, NotRun, Row
from stillweb.snapshots._os.random_access import FileSource
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.index.blocks import stamp_of, steps_of
from stillweb.snapshots.index.cdxj import capture_line
from stillweb.snapshots.index.index_cache import INDEX_VERSION
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.container import DIGEST, INDEX, PACKAGE, STEPS
from stillweb.snapshots.writer import Writer

ROOT = Path(__file__).parents[1]
EACH = 10_000  # pages of a site
TRUE = 7  # one line of so many has the keys of its URL; only those are asked for
ROOM = 800  # bytes on disk for a line
TURNS = 5  # of two programs, one after the other
PATIENCE = 300.0  # seconds that a program may take

LOOKUP = """
import json, os, random, resource, sys, time
sys.path.insert(0, sys.argv[4])
path, count, asked = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
from benchmarks.archives import TRUE, url_of
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
began = time.perf_counter()
snapshot = Snapshot.open(path)
matcher = snapshot.matcher()
session = matcher.session("bench")
def look(n):
    request = Request("GET", url_of(n))
    t = time.perf_counter()
    found = matcher.lookup(request, session)
    t = time.perf_counter() - t
    assert found.capture is not None, n
    session.answered(found)
    return t
look(0)
first = time.perf_counter() - began
chance = random.Random(7)
numbers = [n * TRUE for n in chance.sample(range(1, count // TRUE), min(asked, count // TRUE - 1))]
def times(numbers):
    out = sorted(map(look, numbers))
    return out[len(out) // 2] * 1e6, out[int(len(out) * 0.99)] * 1e6
new = times(numbers)
again = times(numbers[-(1 << 11):] * 4)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
own = sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024 if os.path.exists("/proc/self/status") else peak
print(json.dumps({"first": first, "new": new, "again": again, "mb": own, "with_file": peak}))
"""


def url_of(number: int) -> str:
    """The URL of a line; lines are in the order of their numbers."""
    return f"https://site{number // EACH:05d}.example/path/page-{number % EACH:04d}.html?id={number:09d}"


def many(path: Path, count: int) -> Path:
    """An open snapshot with an index of so many lines.

    What is measured with it is opening and looking up, not reading. Only one line of `TRUE` has a record of its own and the
    keys that belong to its URL, for making these would be most of the work; the others point to the first record.
    """
    package = path / PACKAGE
    made = package.exists() and (count < 100_000 or (path / STEPS).exists())
    if made:
        known = json.loads(package.read_text())
        if (known.get("lines"), known["stillweb"]["index"]["version"]) == (count, INDEX_VERSION):
            return path
    if shutil.disk_usage(path.parent).free < 2 * ROOM * count:
        raise NotRun(f"{count:,} lines need {2 * ROOM * count / 1e9:.0f} GB of disk")
    shutil.rmtree(path, ignore_errors=True)
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    with Writer.open(path) as writer:
        body = b"<p>" + b"word " * 100
        place = writer.exchange(
            Exchange(Request("GET", url_of(0)), 200, "OK", large.HTML, body, moment, "default", 1, 2)
        )
    head, template = _template(place)
    archive = path / "archive" / place.filename
    record = gzip.decompress(archive.read_bytes()[place.offset : place.offset + place.length])
    size = crc = 0
    with open(path / INDEX, "wb", buffering=1 << 20) as out, open(archive, "ab") as records:
        for start in range(0, count, EACH):
            lines = []
            for n in range(start, min(start + EACH, count)):
                url = url_of(n)
                key = request_key(Request("GET", url))
                exact, canonical = key.exact, key.canonical
                offset, length = place.offset, place.length
                if n % TRUE == 0:
                    own = record.replace(url_of(0).encode(), url.encode())
                    offset, length = records.tell(), records.write(isal_zlib.compress(own, 0, wbits=31))
                lines.append(
                    template
                    % {
                        "urlkey": head % (n // EACH, n % EACH, n),
                        "url": url,
                        "exact": exact,
                        "canonical": canonical,
                        "offset": offset,
                        "length": length,
                    }
                )
            data = "".join(lines).encode()
            size += out.write(data)
            crc = isal_zlib.crc32(data, crc)
    index = FileSource(path / INDEX)
    steps = steps_of(index)  # as closing or sealing a snapshot makes them
    index.close()
    (path / STEPS).write_bytes(steps)
    told = json.loads(package.read_text())
    told["lines"] = count
    archives = {place.filename: archive.stat().st_size}
    told["stillweb"]["index"] |= {"bytes": size, "crc32": crc, "steps": stamp_of(steps), "archives": archives}
    package.write_text(json.dumps(told))
    (path / DIGEST).unlink()  # of what was described before
    return path


def _template(place: Capture) -> tuple[str, str]:
    """The form of an index key, of its numbers, and that of a line, of its key, URL and the two keys in it."""
    url = url_of(0)
    key = request_key(Request("GET", url))
    capture = Capture(
        key.urlkey, place.timestamp, url, "GET", 200, "text/html", place.digest, place.filename, place.offset,
        place.length, -1, 0, key.canonical, key.exact, "default", 1, 2,
    )  # fmt: skip
    line = capture_line(capture, "cd" * 32).decode() + "\n"
    rest = line.removeprefix(key.urlkey).replace("%", "%%")
    holes = {
        url: "%(url)s", key.exact: "%(exact)s", key.canonical: "%(canonical)s",
        f'"offset":"{place.offset}"': '"offset":"%(offset)d"', f'"length":"{place.length}"': '"length":"%(length)d"',
    }  # fmt: skip
    for text, hole in holes.items():
        if rest.count(text) != 1:
            raise NotRun(f"an index line has {text!r} not once: {rest[:300]!r}")
        rest = rest.replace(text, hole)
    form = key.urlkey.replace("%", "%%").replace("site00000", "site%05d").replace("page-0000", "page-%04d")
    form = form.replace("000000000", "%09d")
    return form, "%(urlkey)s" + rest


def _look(path: Path, count: int) -> dict[str, list[float]]:
    command = [sys.executable, "-c", LOOKUP, str(path), str(count), "20000", str(ROOT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise NotRun(f"20,000 lookups took more than {PATIENCE:.0f} s") from error
    if done.returncode:
        raise RuntimeError(f"looking up failed: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def lookups(bench: Bench) -> list[Row]:
    """Lookup in process, over indexes of many captures: pages never asked for before, and again."""
    rows: list[Row] = []
    points: list[tuple[int, dict[str, list[float]]]] = []
    counts = (200_000,) if bench.quick else (10_000, 200_000, 1_000_000, 10_000_000)
    for count in counts:
        label = f"lookup in process, {count:,} captures"
        try:
            path = many(bench.work / f"lines-{count}.snapshot", count)
            # in turns of whole processes: the least of them, for other work on the machine counts too
            runs = [_look(path, count) for _ in range(3)]
        except (NotRun, OSError, RuntimeError, subprocess.SubprocessError) as error:
            rows.append(Row(label, f"not run: {error}"))
            continue
        found = min(runs, key=lambda run: run["new"][0])
        points.append((count, found))
        if count == 10_000:
            continue
        bar = "p50 ≤ 30, p99 ≤ 200 µs" if count <= 1_000_000 else ""
        for kind, words in (("new", "pages not asked for before"), ("again", "asked for again")):
            p50, p99 = found[kind]
            held = (p50 <= 30 and p99 <= 200) if bar else None
            rows.append(Row(f"{label}, {words}", f"p50 {p50:.1f} µs, p99 {p99:.1f} µs", bar=bar, held=held))
        first = min(float(run["first"]) for run in runs)  # type: ignore[arg-type]
        name = f"opening {count:,} captures until the first lookup is done"
        held = first <= 0.3 and found["mb"] <= 150  # type: ignore[operator]
        note = f"with the pages of the index that the system keeps for it {found['with_file']:.0f} MB"
        told = f"{first:.2f} s, {found['mb']:.0f} MB"
        bar = "≤ 0.3 s, ≤ 150 MB" if count <= 1_000_000 else ""
        rows.append(Row(name, told, bar=bar, held=held if bar else None, note=note))
    by_count = dict(points)
    if 10_000_000 in by_count and 1_000_000 in by_count:
        most, less = by_count[10_000_000]["new"], by_count[1_000_000]["new"]
        rows.append(
            Row(
                "lookup, 10,000,000 against 1,000,000 captures (p50 of pages not asked for before)",
                f"{most[0]:.1f} µs",
                f"{less[0]:.1f} µs",
                most[0] / less[0],
                "≤ 1.5",
                most[0] <= 1.5 * less[0],
            )
        )
    if points and rows:
        rows[0].data["lookups"] = points
    if not bench.quick:
        shutil.rmtree(bench.work / "lines-10000000.snapshot", ignore_errors=True)
    return rows


def indexing(bench: Bench) -> list[Row]:
    """Indexing the same WARCs, against cdxj-indexer: the real mix, and what a recorder writes."""
    stillweb = str(Path(sys.executable).with_name("stillweb"))
    sets = [("real mix", bench.work / "mixed.snapshot", len(bench.mixed))]
    if not bench.quick:
        for hosts, words in ((10, "ten"), (50, "fifty")):
            many = large.repeated(bench.work / f"mixed-on-{hosts}", bench.work / "mixed", bench.mixed, hosts)
            sets.append((f"the real mix on {words} hosts", many, hosts * len(bench.mixed)))
        others = large.rewritten(bench.work / "mixed-on-50-by-warcio", many)
        sets.append(
            ("the real mix on fifty hosts, recorded by another program", others, 50 * len(bench.mixed))
        )
        count = 10_000
        sets.append((f"{count:,} captures", large.archives(bench.work / "index-many", count), count))
    rows = []
    for words, source, count in sets:
        copy = bench.work / "index-me.snapshot"
        shutil.rmtree(copy, ignore_errors=True)
        for folder in ("indexes", "pages"):
            (copy / folder).mkdir(parents=True)
        shutil.copytree(source / "archive", copy / "archive")
        files = [str(p) for p in sorted((copy / "archive").iterdir())]
        name = f"indexing ({words}, programs as started)"
        own, peer = [], []
        try:
            program = peers.program("cdxj-indexer")
            for _ in range(TURNS):
                own.append(_timed([stillweb, "index", str(copy)]))
                peer.append(_timed([program, "-s", *files]))
        except (NotRun, subprocess.SubprocessError) as error:
            ours = min(own or [_timed([stillweb, "index", str(copy)])])[0]
            rows.append(Row(name, f"{count / ours:,.0f} captures/s", f"not run: {error}", bar="≥ 5"))
            continue
        (ours, spent), (theirs, their_cpu) = min(own), min(peer)  # other work on the machine only adds
        text = f"{count / ours:,.0f} captures/s"
        ratio = theirs / ours
        note = f"{spent / count * 1e6:.0f} µs CPU a capture against {their_cpu / count * 1e6:.0f}"
        told = f"cdxj-indexer {count / theirs:,.0f}/s"
        rows.append(Row(name, text, told, ratio, "≥ 5", ratio >= 5, note))
    return rows


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds and CPU seconds of a program."""
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = threading.Timer(PATIENCE, process.kill)
    limit.start()
    code = process.wait()  # with a timeout it would look every 50 ms
    seconds, after = time.perf_counter() - began, os.times()
    limit.cancel()
    if code:
        raise subprocess.CalledProcessError(code, command)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, spent


def sealing(bench: Bench) -> list[Row]:
    """Sealing, as the command does it: how many cores it keeps busy, and whether memory grows with the pages."""
    counts = [300] if bench.quick else [2_500, 10_000]
    rows: list[Row] = []
    peaks: list[float] = []
    for count in counts:
        source = large.archives(bench.work / f"seal-{count}", count)
        copy = bench.work / "seal-me.snapshot"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        out = bench.work / "sealed.wacz"
        out.unlink(missing_ok=True)
        seconds, cpu, peak = _sealed(copy, out)
        peaks.append(peak)
        cores = os.cpu_count() or 1
        rows.append(
            Row(
                f"sealing {count:,} captures (index, texts, digests, zip)",
                f"{seconds:.1f} s ({count / seconds:,.0f}/s), {cpu / seconds:.2f} of {cores} cores busy, {peak:.0f} MB at most",
                bar="all cores busy" if count >= 10_000 else "",
                held=cpu / seconds >= 0.75 * cores if count >= 10_000 else None,
                note="memory of all its processes",
            )
        )
        shutil.rmtree(copy)
        out.unlink(missing_ok=True)
    if len(peaks) == 2:
        ratio = peaks[1] / peaks[0]
        name = f"memory of sealing, {counts[1]:,} against {counts[0]:,} captures"
        rows.append(Row(name, f"{peaks[1]:.0f} MB", f"{peaks[0]:.0f} MB", ratio, "≤ 1.5", ratio <= 1.5))
    return rows


def _sealed(snapshot: Path, out: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and the most MB of `stillweb seal`."""
    stillweb = str(Path(sys.executable).with_name("stillweb"))
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(
        [stillweb, "seal", str(snapshot), "-o", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    peak = 0.0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            peak = max(peak, servers.memory(process.pid))
        time.sleep(0.05)  # a small one takes little more than a second
        if time.perf_counter() - began > 2 * PATIENCE:
            process.kill()
    seconds, after = time.perf_counter() - began, os.times()
    assert process.stderr is not None
    words = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"stillweb seal ended with {process.returncode}: {words[-200:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, spent, peak
