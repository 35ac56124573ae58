"""States and index lines of many captures, on all cores: sites share nothing, so each worker is given some of them.

What comes back is the same, to the byte, as from one process. A job whose worker fails is done here, so that an
error is told as it is.
"""

from __future__ import annotations

import marshal
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from operator import attrgetter
from typing import Any

from snapshots.capture import Capture
from snapshots.cdxj import capture_line
from snapshots.errors import MissingCapability
from snapshots.pairing import CAPTURE_FIELDS
from snapshots.places import FilePlace
from snapshots.processes import Pool, WorkerDied, WorkerFailed
from snapshots.reading import Archives
from snapshots.request import Request
from snapshots.sites import site_of
from snapshots.state import assign_states

MANY = 6_000  # captures from which more processes pay for their start
JOB = 1_500  # captures sent to a worker together, if they are of small sites

Places = Mapping[tuple[str, int], Any]
_plain = attrgetter(*CAPTURE_FIELDS)


def stated_lines(
    captures: list[Capture],
    identities: Mapping[tuple[str, int], str],
    archives: Archives,
    requests: Mapping[tuple[str, int], Request],
    workers: int | None = None,
) -> list[bytes]:
    """The lines of captures, states included. `requests` are known and need no reading; both by capture place."""
    workers = workers or os.cpu_count() or 1
    places = [p for p in archives.files.values() if isinstance(p, FilePlace)]
    if len(captures) < MANY or workers < 2 or len(places) < len(archives.files):
        return _lines(captures, identities, archives, requests)
    files = {
        name: (str(p.path), p.base, p.size) for name, p in archives.files.items() if isinstance(p, FilePlace)
    }
    lines: list[bytes] = []
    waiting: deque[tuple[list[Capture], Future[bytes]]] = deque()

    def take() -> None:
        job, future = waiting.popleft()
        try:
            lines.extend(future.result().split(b"\n"))
        except (WorkerDied, WorkerFailed, MissingCapability):
            lines.extend(_lines(job, identities, archives, requests))

    with Pool(workers) as pool:
        for job in _jobs(captures):
            if len(waiting) >= 2 * workers:
                take()
            waiting.append((job, pool.submit(work, _packed(job, files, identities, requests))))
        while waiting:
            take()
    return lines


def _jobs(captures: list[Capture]) -> Iterator[list[Capture]]:
    """The captures by site, the largest sites first, so that none is waited for at the end."""
    by_site: dict[str, list[Capture]] = defaultdict(list)
    for capture in captures:
        by_site[site_of(capture.url)].append(capture)
    job: list[Capture] = []
    for site in sorted(by_site, key=lambda s: (-len(by_site[s]), s)):
        job += by_site.pop(site)
        if len(job) >= JOB:
            yield job
            job = []
    if job:
        yield job


def _lines(
    captures: list[Capture],
    identities: Mapping[tuple[str, int], str],
    archives: Archives,
    requests: Mapping[tuple[str, int], Request],
) -> list[bytes]:
    def read_request(capture: Capture) -> Request:
        return requests.get(capture.place) or archives.read_request(capture)

    stated = assign_states(captures, read_request, archives.read)
    return [capture_line(c, identities[c.place]) for c in stated]


def _packed(job: list[Capture], files: dict[str, Any], identities: Places, requests: Places) -> bytes:
    """A job as what marshal takes; quicker than pickle by half."""
    known = [requests.get(c.place) for c in job]
    asked = [None if r is None else (r.method, r.url, r.headers, r.body) for r in known]
    return marshal.dumps((files, [_plain(c) for c in job], [identities[c.place] for c in job], asked))


def work(data: bytes) -> bytes:
    """A job in a worker process: its lines, joined."""
    files, plain, ids, asked = marshal.loads(data)
    captures = [Capture(*values) for values in plain]
    archives = Archives(
        {n: FilePlace(path, base=base, size=size, name=n) for n, (path, base, size) in files.items()}
    )
    identities = {c.place: identity for c, identity in zip(captures, ids, strict=True)}
    requests = {c.place: Request(*r) for c, r in zip(captures, asked, strict=True) if r is not None}
    return b"\n".join(_lines(captures, identities, archives, requests))
