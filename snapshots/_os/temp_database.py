"""Tables on disk for data that need not be in memory.

The tables are in a private, nameless SQLite database, which disappears even if the process is killed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from stillweb.snapshots.errors import MissingCapability

TOGETHER = 1 << 6  # rows fetched at a time


class Scratch:
    """The database. It lies in `SQLITE_TMPDIR`, `TMPDIR` or /var/tmp; for one thread at a time."""

    def __init__(self, schema: str) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # no journal, because nothing is ever rolled back
        self._database.executescript(f"PRAGMA journal_mode=OFF; {schema}; BEGIN")

    def run(self, statement: str, *values: Any) -> None:
        """Execute SQL that returns no rows. Raises MissingCapability on a full disk."""
        try:
            self._database.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error

    def add(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute SQL once for each row. Raises MissingCapability on a full disk."""
        try:
            self._database.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error

    def rows(self, query: str, *values: Any) -> Iterator[Any]:
        """Yield the rows of a query, fetched in batches. Raises MissingCapability on a full disk."""
        try:
            found = self._database.execute(query, values)
            while some := found.fetchmany(TOGETHER):
                yield from some
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error

    def close(self) -> None:
        """Delete the database; a second call does nothing."""
        self._database.close()


def _no_room(error: sqlite3.OperationalError) -> MissingCapability:
    return MissingCapability(
        f"data sorted on disk can't be written to the directory for temporary files: {error}; free some space there, "
        "or name another one in TMPDIR"
    )
