"""Captures in an SQLite database on disk, read once each, in the order in which they were recorded.

So archives with more captures than fit in memory can be imported.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from stillweb.snapshots._os.temp_database import Scratch
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.index.cdxj import capture_of
from stillweb.snapshots.index.gathering import PendingRevisit, ScanResult
from stillweb.snapshots.index.pairing import ResponseRecord
from stillweb.snapshots.index.parallel import answer_of, plain_answer
from stillweb.snapshots.index.resolving import Originals, Row, digest_in, moment_in, resolve_each

TOGETHER = 1000  # revisits resolved before their lines are stored

_SCHEMA = """
    CREATE TABLE captures(name BLOB, session BLOB, begin TEXT, timestamp TEXT, offset TEXT, line BLOB);
    CREATE TABLE originals(name BLOB, offset INTEGER, id BLOB, moment BLOB, digest BLOB, url BLOB, line BLOB);
    CREATE TABLE revisits(name BLOB, offset INTEGER, waiting INTEGER, data BLOB)
"""
_INDEXES = """
    CREATE INDEX by_id ON originals(id);
    CREATE INDEX by_moment ON originals(moment);
    CREATE INDEX by_digest ON originals(digest)
"""
_ORIGINAL = "SELECT offset, id, line, name FROM originals WHERE"
_ORDER = "session, begin, timestamp, name, offset"


class OnDisk:
    """Captures on disk, from a scan (it is a `parallel.SpillSink`) or added by their index lines."""

    def __init__(self) -> None:
        self._scratch = Scratch(_SCHEMA)

    # -- from a scan

    def take(self, part: ScanResult) -> None:
        name = _bytes(part.name)
        self.add(part.listed)
        self._scratch.add(
            "INSERT INTO originals VALUES(?, ?, ?, ?, ?, ?, ?)",
            (
                (name, at, _bytes(one), _bytes(moment), _bytes(digest_in(line)), _bytes(moment.partition(" ")[2]), line)
                for at, one, line, moment in zip(
                    part.offsets, part.ids, part.lines, map(moment_in, part.lines), strict=True
                )
            ),
        )  # fmt: skip
        self._scratch.add(
            "INSERT INTO revisits VALUES(?, ?, ?, ?)",
            (
                *((name, one.offset, 0, marshal.dumps(plain_answer(one))) for one in part.revisits),
                *((name, one.offset, 1, marshal.dumps(tuple(one))) for one in part.waiting),
            ),
        )
        part.listed, part.revisits, part.waiting = [], [], []
        part.lines, part.offsets = [], []

    def forget(self, name: str) -> None:
        for table in ("captures", "originals", "revisits"):
            self._scratch.run(f"DELETE FROM {table} WHERE name = ?", _bytes(name))

    def resolve(self, notes: list[str]) -> None:
        """Add the captures of the scanned revisits, as `resolving.resolve` does; call it after the whole scan."""
        if next(self._scratch.rows("SELECT 1 FROM revisits LIMIT 1"), None) is not None:
            for statement in _INDEXES.split(";"):
                self._scratch.run(statement)
            resolve_each(self._revisits(), _OriginalsOnDisk(self._scratch), notes)
        for table in ("originals", "revisits"):
            self._scratch.run(f"DELETE FROM {table}")

    def _revisits(self) -> Iterator[tuple[int, ResponseRecord | PendingRevisit, ScanResult]]:
        part = ScanResult()
        count = 0
        found = self._scratch.rows("SELECT name, offset, waiting, data FROM revisits ORDER BY name, offset")
        for name, offset, waiting, data in found:
            if count >= TOGETHER or _text(name) != part.name:
                self.add(part.listed)
                part, count = ScanResult(_text(name)), 0
            values: list[Any] = marshal.loads(data)
            yield offset, PendingRevisit(*values) if waiting else answer_of(values), part
            count += 1
        self.add(part.listed)

    # -- in recorded order

    def add(self, lines: Iterable[bytes]) -> None:
        """Add captures by their index lines; skip lines of other records."""
        self._scratch.add("INSERT INTO captures VALUES(?, ?, ?, ?, ?, ?)", filter(None, map(_row, lines)))

    def index_names(self) -> None:
        """Create the database index by archive file name, which speeds up `captures(name)`."""
        self._scratch.run("CREATE INDEX by_name ON captures(name)")

    def count(self, name: str | None = None) -> int:
        """Count the captures, of the archive file `name` or of all."""
        where = "" if name is None else "WHERE name = ?"
        ((found,),) = self._scratch.rows(f"SELECT COUNT(*) FROM captures {where}", *_only(name))
        return int(found)

    def captures(self, name: str | None = None) -> Iterator[Capture]:
        """Yield the captures of the archive file `name`, or all, by session, event number, time and place."""
        where = "" if name is None else "WHERE name = ?"
        for (line,) in self._scratch.rows(
            f"SELECT line FROM captures {where} ORDER BY {_ORDER}", *_only(name)
        ):
            capture = capture_of(line)
            assert capture is not None
            yield capture

    def lines(self) -> Iterator[bytes]:
        """Yield the index lines of all captures, sorted."""
        yield from (line for (line,) in self._scratch.rows("SELECT line FROM captures ORDER BY line"))

    def close(self) -> None:
        """Close the database and delete its file."""
        self._scratch.close()

    def __enter__(self) -> OnDisk:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _row(line: bytes) -> tuple[Any, ...] | None:
    capture = capture_of(line)
    if capture is None:
        return None
    session, name = _bytes(capture.session), _bytes(capture.filename)
    return name, session, _number(capture.begin), capture.timestamp, _number(capture.offset), line


def _number(value: int) -> str:
    """Return a number of any size as a text that sorts like it; negative ones like 0."""
    digits = str(max(0, value))
    return f"{len(digits):04d}{digits}"


def _bytes(text: str) -> bytes:
    """Encode a text that may hold lone surrogates, which SQLite's TEXT can't store; the sort order stays."""
    return text.encode(errors="surrogatepass")


def _text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def _only(name: str | None) -> Iterator[bytes]:
    return repeat(_bytes(name or ""), 0 if name is None else 1)


class _OriginalsOnDisk(Originals):
    def __init__(self, scratch: Scratch) -> None:
        super().__init__(())
        self._scratch = scratch

    def _first(self, where: str, *values: str, last: bool = False) -> Row | None:
        down = " DESC" if last else ""
        query = f"{_ORIGINAL} {where} ORDER BY name{down}, offset{down} LIMIT 1"
        for offset, record_id, line, name in self._scratch.rows(query, *map(_bytes, values)):
            return offset, _text(record_id), line, _text(name)
        return None

    def by_id(self, record_id: str) -> Row | None:
        return self._first("id = ?", record_id, last=True)

    def by_moment(self, moment: str) -> Row | None:
        return self._first("moment = ?", moment)

    def by_digest(self, digest: str, urls: tuple[str, str]) -> Row | None:
        found = (self._first("digest = ? AND url = ?", digest, url) for url in urls)
        return next((row for row in found if row is not None), None) or self._first("digest = ?", digest)
