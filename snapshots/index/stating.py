"""Index lines with states, for sites where something may have changed, computed on all cores, site by site.

The result is the same, to the byte, as that of a single process. A job whose worker fails is done again in this
process, so that its error is raised here.
"""

from __future__ import annotations

import importlib
import marshal
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any

from stillweb.snapshots._os.forks import can_fork, run_all
from stillweb.snapshots._os.places import FilePlace, Place
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.cdxj import capture_line, capture_of, identity_in, restated
from stillweb.snapshots.index.gathering import Site
from stillweb.snapshots.index.pairing import Asked
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.answers import LIMIT
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.reading import Archives

MANY = 6_000  # captures from which spawned processes are worth their start
FORKED = 200  # the same for forks
REMEMBERED = 1 << 23  # bytes of bodies in the cache while the states of a site are computed
SMALL = 1 << 15  # bytes of the largest body in the cache
JOB = 1_500  # captures of small sites that make one job

# HTTP head right after the WARC head; not with status 304, whose header fields come from the original.
_OWN_HEAD = re.compile(rb"\r\n\r\nHTTP/1\.[01] (?!304)[0-9]{3}[ \r]")

Lines = tuple[list[bytes], list[Asked | None]]  # lines of a site, and their requests; None: not in memory


def final_lines(sites: Iterable[Site], archives: Archives, workers: int | None = None) -> list[bytes]:
    """Return the lines of whole sites with their states; most lines of plain sites are final already."""
    lines: list[bytes] = []
    others: list[Lines] = []
    for site in sites:
        kept, left, asked = site.final()
        lines += kept
        if left:
            others.append((left, asked))
    return lines + stated_sites(others, archives, workers)


def stated_lines(
    captures: list[Capture],
    identities: Mapping[tuple[str, int], str],
    archives: Archives,
    requests: Mapping[tuple[str, int], Request] = MappingProxyType({}),
    workers: int | None = None,
) -> list[bytes]:
    """Return the lines of captures with their states.

    `identities` and `requests` are by capture place; requests that are given are not read from their records.
    """
    sites: dict[str, Lines] = defaultdict(lambda: ([], []))
    for capture in captures:
        lines, asked = sites[site_of(capture.url)]
        lines.append(capture_line(capture, identities[capture.place]))
        known = requests.get(capture.place)
        asked.append((known.method, known.url, known.headers, known.body, False) if known else None)
    return stated_sites([sites[name] for name in sorted(sites)], archives, workers)


def stated_sites(sites: list[Lines], archives: Archives, workers: int | None = None) -> list[bytes]:
    """Compute the states of whole sites; return their lines in no order."""
    workers = workers or os.cpu_count() or 1
    files = {
        name: (str(p.path), p.base, p.size) for name, p in archives.files.items() if isinstance(p, FilePlace)
    }
    count = sum(len(lines) for lines, _ in sites)
    forked = can_fork()
    jobs = list(_jobs(sites, max(1, min(JOB, count // (4 * workers)))))
    if (
        count < (FORKED if forked else MANY)
        or min(workers, len(jobs)) < 2
        or len(files) < len(archives.files)
    ):
        return [line for known, asked in sites for line in _lines(known, asked, archives)]
    if forked:  # load it once, not in each fork
        importlib.import_module("stillweb.snapshots.states.state")
    lines: list[bytes] = []
    with closing(run_all(work, [marshal.dumps((files, job)) for job in jobs], workers)) as results:
        for job, result in zip(jobs, results, strict=True):
            if result is None:
                lines += [line for known, asked in job for line in _lines(known, asked, archives)]
            else:
                lines += result.split(b"\n")
    return lines


def _jobs(sites: list[Lines], size: int) -> Iterator[list[Lines]]:
    """Yield jobs of sites, the largest first, so that workers end together; small sites share a job."""
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
    """Archives with a cache of small answers and cookies, for revisits and repeated reads of the same answer."""

    def __init__(self, files: Mapping[str, Place]) -> None:
        super().__init__(files)
        self._cookies: dict[tuple[str, int], list[str]] = {}
        self._payloads: dict[tuple[str, int, str], Response] = {}
        self._size = 0

    def payload(self, place: tuple[str, int, int], method: str, digest: str = "") -> Response:
        """Return the payload as `Archives.payload` does; keep bodies of up to 32 KiB."""
        key = place[0], place[1], method
        found = self._payloads.get(key)
        if found is None:
            found = super().payload(place, method, digest)
            if (size := len(found.body)) <= SMALL:
                self._size += size
                if self._size > REMEMBERED:
                    self._payloads.clear()
                    self._size = size
                self._payloads[key] = found
        return found

    def sets_none(self, place: tuple[str, int]) -> None:
        """Record that the answer in `place` sets no cookie, so that it isn't read for that."""
        self._cookies[place] = []

    def cookies(self, capture: Capture) -> list[str]:
        """Return the values of Set-Cookie in an answer."""
        found = self._cookies.get(capture.place)
        if found is None:
            try:
                found = [] if self._sets_none(capture) else messages.set_cookies(self._head(capture).headers)
            except TooLarge:
                found = messages.set_cookies(self.start(capture, 0).headers)
            self._cookies[capture.place] = found
        return found

    def _sets_none(self, capture: Capture) -> bool:
        """Return True if a revisit of ours surely sets no cookie, by a search of its record's bytes."""
        place = self.files.get(capture.filename)
        if capture.original is None or not capture.session or place is None:
            return False
        data = warc.unpack(place.read(capture.offset, capture.length), place, capture.offset)
        return b"set-cookie" not in data.lower() and _OWN_HEAD.search(data) is not None

    def _head(self, capture: Capture) -> Response:
        """Return the answer of a capture as `read` does, but without its body."""
        if capture.original is None:
            whole = self.payload((capture.filename, capture.offset, capture.length), capture.method)
            return Response(whole.status, whole.reason, whole.headers, b"")
        record = self.record(capture.filename, capture.offset, capture.length)
        line, headers, _ = messages.split(record.block)
        status = messages.status_line(line)
        if record.kind == "resource" or not record.ours or status is None or status[0] == 304:
            whole = super().read(capture)
            return Response(whole.status, whole.reason, whole.headers, b"")
        return Response(*status, headers, b"")

    def read(self, capture: Capture) -> Response:
        """Return the answer as `Archives.read` does; of a body that is `TooLarge` only the first `LIMIT` + 1 bytes."""
        try:
            if capture.original is None:
                return self.payload((capture.filename, capture.offset, capture.length), capture.method)
            head = self._head(capture)
            whole = self.payload(capture.original, capture.method)
        except TooLarge:
            return self.start(capture, LIMIT + 1)
        return Response(head.status, head.reason, head.headers, whole.body)


def _lines(lines: list[bytes], asked: list[Asked | None], archives: Archives) -> list[bytes]:
    """Return the lines of one site with their states."""
    from stillweb.snapshots.states.state import site_states  # only needed if a site is not plain

    archives = _Remembering(archives.files)
    captures: list[Capture] = []
    line_of: dict[tuple[str, int], bytes] = {}
    requests: dict[tuple[str, int], Request] = {}
    first: dict[str, tuple[str, int]] = {}  # first place of each identity
    copies: list[tuple[Capture, tuple[str, int]]] = []
    for line, request in zip(lines, asked, strict=True):
        capture = capture_of(line)
        assert capture is not None
        place = capture.place
        line_of[place] = line
        known = first.setdefault(identity_in(line), place)
        if known != place:  # the same records in a copy of a file: the request was sent once
            copies.append((capture, known))
            continue
        captures.append(capture)
        if request is not None:
            requests[place] = Request(*request[:4])
            if request[4]:
                archives.sets_none(place)
    captures.sort(key=lambda capture: capture.place)

    def read_request(capture: Capture) -> Request:
        return requests.get(capture.place) or archives.read_request(capture)

    def sound(capture: Capture) -> bool:
        try:
            read_request(capture)
            archives.read(capture)
        except DamagedInput:
            return False
        return True

    try:
        found = list(site_states(captures, read_request, archives.read, archives.cookies))
    except DamagedInput:
        # compute states without the damaged captures, which raise DamagedInput when they are read
        captures = [capture for capture in captures if sound(capture)]
        found = list(site_states(captures, read_request, archives.read, archives.cookies))
    for capture, stated in found:
        line_of[capture.place] = restated(line_of[capture.place], capture, stated)
    states = {capture.place: stated for capture, stated in found}
    for capture, place in copies:
        if place in states:
            line_of[capture.place] = restated(line_of[capture.place], capture, states[place])
    return list(line_of.values())


def work(data: bytes) -> bytes:
    """Do a marshalled job in a worker process; return its lines, joined by line breaks."""
    files, job = marshal.loads(data)
    archives = Archives(
        {n: FilePlace(path, base=base, size=size, name=n) for n, (path, base, size) in files.items()}
    )
    sites: list[Any] = job
    return b"\n".join(line for known, asked in sites for line in _lines(known, asked, archives))
