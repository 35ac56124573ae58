"""As `snapshots.contents.recorded`, for recordings of any size that are made at once: lines wait on disk, and what is
in memory of each is where its payload lies.

Lines are final where nothing can have changed on their site, as in `snapshots.index.gathering.Site`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from snapshots.archives.reading import Archives
from snapshots.capture import Capture, with_state
from snapshots.contents.recorded import Now, Recorded
from snapshots.contents.records import Original
from snapshots.dates import iso_date
from snapshots.identity.sites import site_of
from snapshots.index.cdxj import capture_line, capture_of
from snapshots.index.gathering import ODD, SILENT, TELLING, told_by
from snapshots.index.stating import Lines, stated_sites
from snapshots.machine.scratch import Scratch
from snapshots.request import Request
from snapshots.states.conditions import ANY
from snapshots.states.plain import static, unremarkable

TOGETHER = 6_000  # captures whose states are found at once, if they are of small sites

_SCHEMA = """
    CREATE TABLE captures(number INTEGER PRIMARY KEY, site BLOB, key TEXT, told BLOB, says INTEGER, line BLOB);
    CREATE TABLE telling(site BLOB PRIMARY KEY);
    CREATE TABLE differing(site BLOB, key TEXT, PRIMARY KEY(site, key));
    CREATE TABLE final(line BLOB)
"""
_LEFT = "(site IN (SELECT site FROM telling) OR (site, key) IN (SELECT site, key FROM differing))"


class RecordedOnDisk(Recorded):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Scratch(_SCHEMA)
        self._count = 0
        self._numbers: dict[bytes, int] = {}  # of the first capture of each payload, by digest

    def load(self, captures: list[bytes], others: Iterable[bytes]) -> None:
        """See `Recorded.load`. What was asked isn't known of these: their sites are looked at again."""
        self.others += others
        for line in captures:
            capture = capture_of(line)
            assert capture is not None
            self._keep(capture, line, TELLING)

    def add(self, capture: Capture, identity: str, request: Request) -> None:
        """See `Recorded.add`."""
        still = static(capture.method, capture.mime, capture.status)
        says = SILENT
        # "not modified" has its fields from another record
        if capture.status == 304 or not unremarkable(
            capture.method, capture.url, request.headers, request.body, capture.status
        ):
            says = ODD if still and capture.status != 304 else TELLING
        stated = with_state(capture, (capture.vary, "", ANY if still else "", False))
        self._keep(capture, capture_line(stated, identity), says)

    def _keep(self, capture: Capture, line: bytes, says: int) -> None:
        told = told_by(capture.method, capture.status, capture.digest, *capture.place)
        site = site_of(capture.url).encode(errors="surrogatepass")
        self._scratch.run(
            "INSERT INTO captures VALUES(?, ?, ?, ?, ?, ?)",
            self._count,
            site,
            capture.key,
            told.encode(errors="surrogatepass"),
            says,
            line,
        )
        if capture.original is None and capture.digest:
            self._numbers.setdefault(_packed(capture.digest), self._count)
        self._count += 1
        self._follow(capture)

    def payload(self, digest: str) -> Original | None:
        """See `Recorded.payload`."""
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
        """See `Recorded.now`: nothing, as it isn't read while it is written."""
        return None, [], {}, []

    def lines(self, now: Now, archives: Archives) -> Iterator[bytes]:
        """See `Recorded.lines`."""
        run, rows = self._scratch.run, self._scratch.rows
        for table in ("telling", "differing", "final"):
            run(f"DELETE FROM {table}")
        run(f"INSERT INTO telling SELECT DISTINCT site FROM captures WHERE says = {TELLING}")
        several = "FROM captures GROUP BY site, key HAVING COUNT(DISTINCT told) > 1"
        run(f"INSERT OR IGNORE INTO telling SELECT site FROM (SELECT site {several} AND MAX(says) >= {ODD})")
        run(f"INSERT INTO differing SELECT site, key {several}")
        run(f"INSERT INTO final SELECT line FROM captures WHERE NOT {_LEFT}")
        self._scratch.add("INSERT INTO final VALUES(?)", ((line,) for line in self.others))
        for sites in self._left():
            self._scratch.add(
                "INSERT INTO final VALUES(?)", ((line,) for line in stated_sites(sites, archives))
            )
        for (line,) in rows("SELECT DISTINCT line FROM final ORDER BY line"):
            yield line

    def _left(self) -> Iterator[list[Lines]]:
        """The lines that are not final, by site, some sites at a time."""
        sites: list[Lines] = []
        count = 0
        found = self._scratch.rows(f"SELECT site, line FROM captures WHERE {_LEFT} ORDER BY site, number")
        for _, of_site in groupby(found, key=itemgetter(0)):
            lines = [line for _, line in of_site]
            sites.append((lines, [None] * len(lines)))
            count += len(lines)
            if count >= TOGETHER:
                yield sites
                sites, count = [], 0
        if sites:
            yield sites

    def close(self) -> None:
        """See `Recorded.close`."""
        self._scratch.close()


def _packed(digest: str) -> bytes:
    """A digest in as little as it takes: of each payload one is in memory."""
    algorithm, _, value = digest.partition(":")
    return bytes.fromhex(value) if algorithm == "sha256" and len(value) == 64 else digest.encode()
