"""The variant of `stillweb.snapshots.contents.recorded` for recordings of any size that are made in one go.

Lines wait on disk; memory holds only the number of the first capture of each payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stillweb.snapshots._os.scratch import Scratch
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.recorded import Lines, Now, Recorded
from stillweb.snapshots.contents.records import Original
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.index.cdxj import capture_line, capture_of
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.reading import Archives

_SCHEMA = """
    CREATE TABLE captures(number INTEGER PRIMARY KEY, line BLOB);
    CREATE TABLE others(line BLOB)
"""


class RecordedOnDisk(Recorded):
    """The writer's account of the recording, kept on disk."""

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

    def now(self) -> Now:
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
