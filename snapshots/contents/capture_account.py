"""The writer's account of the recording so far: event numbers, payloads by digest, and index lines.

Lines that existed when the writer was opened stay unread until their captures are needed; those of an index on disk
are not even in memory until then.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from stillweb.snapshots._os.temp_database import Scratch
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.records import Original
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.index.build import finish
from stillweb.snapshots.index.cdxj import capture_line, capture_of, parse_line, sorted_lines, to_capture
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.reading import Archives

OTHER = b"urn:"  # start of the lines of records that are no captures (`indexing.other_key`)


@dataclass(slots=True)
class LinesOnDisk:
    """The sorted lines of captures that are on disk, read anew each time."""

    read: Callable[[], Iterator[bytes]]
    count: int

    def __iter__(self) -> Iterator[bytes]:
        return (line for line in self.read() if not line.startswith(OTHER))

    def __len__(self) -> int:
        return self.count


Lines = list[bytes] | LinesOnDisk
# lines of captures, or None and the data to make them; lines of other records
Now = tuple[Lines | None, list[Capture], dict[tuple[str, int], str], list[bytes]]


class CaptureAccount:
    """The account in memory.

    Event numbers have a lock of their own, because every request takes some. `add` and `now` need the
    writer's lock.
    """

    def __init__(self) -> None:
        self.others: list[bytes] = []  # lines of records that are no HTTP exchange
        self._ready: Lines | None = []  # lines of all captures; None: to be made
        self._unread: Lines = []  # lines whose captures have not been parsed
        self._captures: list[Capture] = []
        self._identities: dict[tuple[str, int], str] = {}
        self._payloads: dict[str, Original] = {}  # by digest
        self._events: dict[str, int] = {}
        self._lock = threading.Lock()

    def load(self, captures: Lines, others: Iterable[bytes]) -> None:
        """Take over the lines of a snapshot that is continued."""
        self._ready = self._unread = captures
        self.others += others

    def _read(self) -> None:
        if self._unread:
            with self._lock:
                for line in self._unread:
                    urlkey, timestamp, entry = parse_line(line)
                    self._take(to_capture(urlkey, timestamp, entry), entry["id"])
                self._unread = []  # not before: concurrent callers have to wait

    def _take(self, capture: Capture, identity: str) -> None:
        self._captures.append(capture)
        self._identities[capture.place] = identity
        if capture.original is None and capture.digest:
            place = capture.filename, capture.offset, capture.length
            self._payloads.setdefault(capture.digest, (capture.url, iso_date(capture.timestamp), place))
        self._follow(capture)

    def _follow(self, capture: Capture) -> None:
        last = max(capture.begin, capture.end)
        if last > self._events.get(capture.session, 0):
            self._events[capture.session] = last

    def add(self, capture: Capture, identity: str, request: Request) -> None:
        self._read()
        with self._lock:
            self._take(capture, identity)
            self._ready = None

    def payload(self, digest: str) -> Original | None:
        """Return the place where a payload is stored, or None."""
        self._read()
        return self._payloads.get(digest)

    def event(self, session: str) -> int:
        self._read()
        with self._lock:
            self._events[session] = number = self._events.get(session, 0) + 1
            return number

    def last_event(self, session: str) -> int:
        self._read()
        with self._lock:
            return self._events.get(session, 0)

    def __len__(self) -> int:
        return len(self._captures) + len(self._unread)

    def current(self) -> Now:
        """Return the current data for `lines`. Call it under the writer's lock."""
        if self._ready is not None:
            return self._ready, [], {}, list(self.others)
        return None, list(self._captures), dict(self._identities), list(self.others)

    def lines(self, now: Now, archives: Archives) -> Iterable[bytes]:
        """Return the sorted lines for the data from `now`; a list if they are in memory."""
        ready, captures, identities, others = now
        if ready is None:
            ready = finish(captures, identities, [])
            with self._lock:
                if len(captures) == len(self._captures):
                    self._ready = ready
        if isinstance(ready, list):
            return sorted_lines([*ready, *others]) if others else ready
        return heapq.merge(ready, sorted_lines(others))

    def close(self) -> None:
        """Free external resources; none here."""


_SCHEMA = """
    CREATE TABLE captures(number INTEGER PRIMARY KEY, line BLOB);
    CREATE TABLE others(line BLOB)
"""


class CaptureAccountOnDisk(CaptureAccount):
    """The account for a recording of any size that is made in one go and not read meanwhile.

    Lines wait on disk; memory holds only the number of the first capture of each payload.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Scratch(_SCHEMA)
        self._count = 0
        self._numbers: dict[bytes, int] = {}  # number of the first capture of each payload, by digest

    def load(self, captures: Lines, others: Iterable[bytes]) -> None:
        """Load the lines of an earlier recording."""
        self.others += others
        for line in captures:
            capture = capture_of(line)
            assert capture is not None
            self._keep(capture, line)

    def add(self, capture: Capture, identity: str, request: Request) -> None:
        self._keep(capture, capture_line(capture, identity))

    def _keep(self, capture: Capture, line: bytes) -> None:
        self._scratch.run("INSERT INTO captures VALUES(?, ?)", self._count, line)
        if capture.original is None and capture.digest:
            self._numbers.setdefault(_packed(capture.digest), self._count)
        self._count += 1
        self._follow(capture)

    def payload(self, digest: str) -> Original | None:
        number = self._numbers.get(_packed(digest))
        if number is None:
            return None
        ((line,),) = self._scratch.rows("SELECT line FROM captures WHERE number = ?", number)
        first = capture_of(line)
        assert first is not None
        return first.url, iso_date(first.timestamp), (first.filename, first.offset, first.length)

    def __len__(self) -> int:
        return self._count

    def current(self) -> Now:
        """Return no data: this class is never read while it is written."""
        return None, [], {}, []

    def lines(self, now: Now, archives: Archives) -> Iterator[bytes]:
        self._scratch.run("DELETE FROM others")
        self._scratch.add("INSERT INTO others VALUES(?)", ((line,) for line in self.others))
        both = "SELECT line FROM captures UNION SELECT line FROM others ORDER BY line"
        for (line,) in self._scratch.rows(both):
            yield line

    def close(self) -> None:
        self._scratch.close()


def _packed(digest: str) -> bytes:
    """Return a digest in few bytes: one digest of each payload is in memory."""
    algorithm, _, value = digest.partition(":")
    return bytes.fromhex(value) if algorithm == "sha256" and len(value) == 64 else digest.encode()
