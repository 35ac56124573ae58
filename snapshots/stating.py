"""Lines with their states: of sites where something may have changed, on all cores, for sites share nothing.

What comes back is the same, to the byte, as from one process. A job whose worker fails is done here, so that an
error is told as it is.
"""

from __future__ import annotations

import marshal
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any

from snapshots import warc
from snapshots.capture import Capture
from snapshots.cdxj import capture_line, parse_line, to_capture
from snapshots.forks import can_fork, run_all
from snapshots.gathering import Site
from snapshots.pairing import Asked
from snapshots.places import FilePlace, Place
from snapshots.reading import Archives
from snapshots.request import Request
from snapshots.sites import site_of

MANY = 6_000  # captures from which new processes pay for their start
FORKED = 200  # and forks
REMEMBERED = 512  # records kept while the states of a site are found
SMALL = 1 << 15  # bytes of such a record
JOB = 1_500  # captures given to a worker together, if they are of small sites

Lines = tuple[list[bytes], list[Asked | None]]  # of a site, and what was asked for each; None: to be read


def final_lines(sites: Iterable[Site], archives: Archives, workers: int | None = None) -> list[bytes]:
    """The lines of whole sites, states included: most of those of plain ones are final already."""
    lines: list[bytes] = []
    others: list[Lines] = []
    for site in sites:
        kept, left, asked = site.final()
        lines += kept
        if left:
            others.append((left, asked))
    return lines + _stated(others, archives, workers)


def stated_lines(
    captures: list[Capture],
    identities: Mapping[tuple[str, int], str],
    archives: Archives,
    requests: Mapping[tuple[str, int], Request] = MappingProxyType({}),
    workers: int | None = None,
) -> list[bytes]:
    """The lines of captures, states included. `requests` are known and need no reading; both by capture place."""
    sites: dict[str, Lines] = defaultdict(lambda: ([], []))
    for capture in captures:
        lines, asked = sites[site_of(capture.url)]
        lines.append(capture_line(capture, identities[capture.place]))
        known = requests.get(capture.place)
        asked.append((known.method, known.url, known.headers, known.body) if known else None)
    return _stated([sites[name] for name in sorted(sites)], archives, workers)


def _stated(sites: list[Lines], archives: Archives, workers: int | None) -> list[bytes]:
    workers = workers or os.cpu_count() or 1
    files = {
        name: (str(p.path), p.base, p.size) for name, p in archives.files.items() if isinstance(p, FilePlace)
    }
    count = sum(len(lines) for lines, _ in sites)
    if count < (FORKED if can_fork() else MANY) or workers < 2 or len(files) < len(archives.files):
        return [line for known, asked in sites for line in _lines(known, asked, archives)]
    jobs = list(_jobs(sites, max(1, min(JOB, count // (4 * workers)))))
    lines: list[bytes] = []
    with closing(run_all(work, [marshal.dumps((files, job)) for job in jobs], workers)) as results:
        for job, result in zip(jobs, results, strict=True):
            if result is None:
                lines += [line for known, asked in job for line in _lines(known, asked, archives)]
            else:
                lines += result.split(b"\n")
    return lines


def _jobs(sites: list[Lines], size: int) -> Iterator[list[Lines]]:
    """The sites, the largest first, so that none is waited for at the end; small ones together."""
    job: list[Lines] = []
    count = 0
    for site in sorted(sites, key=lambda s: (-len(s[0]), s[0])):
        job.append(site)
        count += len(site[0])
        if count >= size:
            yield job
            job, count = [], 0
    if job:
        yield job


class _Remembering(Archives):
    """Archives of which the same small records are read again and again: those that revisits refer to."""

    def __init__(self, files: Mapping[str, Place]) -> None:
        super().__init__(files)
        self._known: dict[tuple[str, int], warc.Record] = {}

    def record(self, filename: str, offset: int, length: int) -> warc.Record:
        """See `Archives.record`."""
        found = self._known.get((filename, offset))
        if found is None:
            found = super().record(filename, offset, length)
            if len(found.block) <= SMALL:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[filename, offset] = found
        return found


def _lines(lines: list[bytes], asked: list[Asked | None], archives: Archives) -> list[bytes]:
    """The lines of a site, with its states."""
    from snapshots.state import assign_states  # not needed where all sites are plain

    archives = _Remembering(archives.files)
    captures: list[tuple[Capture, str]] = []
    requests: dict[tuple[str, int], Request] = {}
    for line, request in zip(lines, asked, strict=True):
        urlkey, timestamp, entry = parse_line(line)
        entry.pop("state", None)
        capture = to_capture(urlkey, timestamp, entry)
        captures.append((capture, entry["id"]))
        if request is not None:
            requests[capture.place] = Request(*request)
    captures.sort(key=lambda found: found[0].place)

    def read_request(capture: Capture) -> Request:
        return requests.get(capture.place) or archives.read_request(capture)

    stated = assign_states([c for c, _ in captures], read_request, archives.read)
    return [capture_line(c, identity) for c, (_, identity) in zip(stated, captures, strict=True)]


def work(data: bytes) -> bytes:
    """A job in a worker process: its lines, joined."""
    files, job = marshal.loads(data)
    archives = Archives(
        {n: FilePlace(path, base=base, size=size, name=n) for n, (path, base, size) in files.items()}
    )
    sites: list[Any] = job
    return b"\n".join(line for known, asked in sites for line in _lines(known, asked, archives))
