"""The variant of `stillweb.snapshots.contents.recorded` for recordings of any size that are made in one go.

Lines wait on disk; memory holds only the number of the first capture of each payload. A line is final if
nothing can have changed on its site, as in `stillweb.snapshots.index.gathering.Site`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from stillweb.snapshots._os.scratch import Scratch
from stillweb.snapshots.capture import Capture, with_state
from stillweb.snapshots.contents.recorded import Now, Recorded, unlearned
from stillweb.snapshots.contents.records import Original
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.cdxj import capture_line, capture_of, identity_in
from stillweb.snapshots.index.gathering import ODD, SILENT, TELLING, told_by
from stillweb.snapshots.index.stating import Lines, stated_sites
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.answers import static
from stillweb.snapshots.states.conditions import ANY
from stillweb.snapshots.states.plain import unremarkable
from stillweb.snapshots.warc.reading import Archives

TOGETHER = 6_000  # captures of small sites whose states are found in one batch

_SCHEMA = """
    CREATE TABLE captures(number INTEGER PRIMARY KEY, site BLOB, key TEXT, told BLOB, says INTEGER, line BLOB);
    CREATE TABLE touched(site BLOB PRIMARY KEY);
    CREATE TABLE telling(site BLOB PRIMARY KEY);
    CREATE TABLE differing(site BLOB, key TEXT, PRIMARY KEY(site, key));
    CREATE TABLE final(line BLOB)
"""
UNREAD = 3  # not yet known (see SILENT and others): the request of a capture from before was not read
_NEW = "site IN (SELECT site FROM touched)"
_LEFT = "(site IN (SELECT site FROM telling) OR (site, key) IN (SELECT site, key FROM differing))"


class RecordedOnDisk(Recorded):
    """The writer's account of the recording, kept on disk."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Scratch(_SCHEMA)
        self._count = self._loaded = 0
        self._numbers: dict[bytes, int] = {}  # number of the first capture of each payload, by digest

    def load(self, captures: list[bytes], others: Iterable[bytes]) -> None:
        """Load the lines of an earlier recording. Lines of sites without new captures stay as they are."""
        self.others += others
        for line in captures:
            capture = capture_of(line)
            assert capture is not None
            self._keep(capture, line, UNREAD)
        self._loaded = self._count

    def add(self, capture: Capture, identity: str, request: Request) -> None:
        still = static(capture.method, capture.mime, capture.status)
        stated = with_state(capture, (capture.vary, "", ANY if still else "", False))
        self._keep(capture, capture_line(stated, identity), _says(capture, request))

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
        run, rows = self._scratch.run, self._scratch.rows
        for table in ("touched", "telling", "differing", "final"):
            run(f"DELETE FROM {table}")
        run("INSERT INTO touched SELECT DISTINCT site FROM captures WHERE number >= ?", self._loaded)
        self._read_before(archives)
        run(f"INSERT INTO telling SELECT DISTINCT site FROM captures WHERE says = {TELLING}")
        several = f"FROM captures WHERE {_NEW} GROUP BY site, key HAVING COUNT(DISTINCT told) > 1"
        run(f"INSERT OR IGNORE INTO telling SELECT site FROM (SELECT site {several} AND MAX(says) >= {ODD})")
        run(f"INSERT INTO differing SELECT site, key {several}")
        run(f"INSERT INTO final SELECT line FROM captures WHERE NOT {_LEFT}")
        self._scratch.add("INSERT INTO final VALUES(?)", ((line,) for line in self.others))
        for sites in self._left(archives):
            self._scratch.add(
                "INSERT INTO final VALUES(?)", ((line,) for line in stated_sites(sites, archives))
            )
        for (line,) in rows("SELECT DISTINCT line FROM final ORDER BY line"):
            yield line

    def _read_before(self, archives: Archives) -> None:
        """Classify the earlier captures on sites with new ones, by reading their requests."""
        before = f"FROM captures WHERE says = {UNREAD} AND {_NEW}"
        telling = f"SELECT site FROM captures WHERE says = {TELLING}"
        found = self._scratch.rows(
            f"SELECT number, site, line {before} AND site NOT IN ({telling}) ORDER BY site, number"
        )
        read: list[tuple[int, int]] = []
        for _, of_site in groupby(found, key=itemgetter(1)):
            for number, _, line in of_site:
                capture = capture_of(line)
                assert capture is not None
                says = _read_again(capture, archives)
                if says != SILENT:
                    read.append((says, number))
                if says == TELLING:
                    break  # one such capture decides for its site
        self._scratch.add("UPDATE captures SET says = ? WHERE number = ?", read)
        # The other captures of a site with a telling one need no classification.
        self._scratch.run(f"UPDATE captures SET says = {SILENT} WHERE says = {UNREAD} AND {_NEW}")

    def _left(self, archives: Archives) -> Iterator[list[Lines]]:
        """Yield the lines that are not final, grouped by site, some sites at a time."""
        sites: list[Lines] = []
        count = 0
        found = self._scratch.rows(
            f"SELECT site, line, number FROM captures WHERE {_LEFT} ORDER BY site, number"
        )
        for _, of_site in groupby(found, key=itemgetter(0)):
            lines = [
                _unlearned(line, archives) if number < self._loaded else line for _, line, number in of_site
            ]
            sites.append((lines, [None] * len(lines)))
            count += len(lines)
            if count >= TOGETHER:
                yield sites
                sites, count = [], 0
        if sites:
            yield sites

    def close(self) -> None:
        self._scratch.close()


def _says(capture: Capture, request: Request) -> int:
    """Return how an exchange counts as evidence of state (SILENT, ODD or TELLING), like the index."""
    # the fields of "not modified" come from another record
    if capture.status != 304 and unremarkable(
        capture.method, capture.url, request.headers, request.body, capture.status
    ):
        return SILENT
    still = static(capture.method, capture.mime, capture.status)
    return ODD if still and capture.status != 304 else TELLING


def _read_again(capture: Capture, archives: Archives) -> int:
    """Classify a capture whose request is in the archives. An unreadable request counts as TELLING."""
    bare = Request(capture.method, capture.url)
    # no header field makes TELLING less
    if capture.request_offset < 0 or _says(capture, bare) == TELLING:
        return TELLING
    try:
        return _says(capture, archives.read_request(capture))
    except DamagedInput:
        return TELLING


def _unlearned(line: bytes, archives: Archives) -> bytes:
    """Return the line of a capture without learned states; see `unlearned`."""
    capture = capture_of(line)
    assert capture is not None
    bare = unlearned(capture, archives)
    return line if bare is capture else capture_line(bare, identity_in(line))


def _packed(digest: str) -> bytes:
    """Return a digest in few bytes: one digest of each payload is in memory."""
    algorithm, _, value = digest.partition(":")
    return bytes.fromhex(value) if algorithm == "sha256" and len(value) == 64 else digest.encode()
