"""The sessions of a gateway: active ones in memory, idle ones in a temporary file.

So memory stays flat, and no session is lost: one that returns after hours goes on where it stopped.
"""

from __future__ import annotations

import itertools
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stillweb.proxy.replay.replies import Line

if TYPE_CHECKING:
    from stillweb.snapshots.matching.sessions import Session

REST = 5.0  # seconds without a request or an open connection after which a session is idle
AT_ONCE = 16  # sessions moved to the file before other work gets its turn


class Lines:
    """The sessions by name.

    `begin` creates the state of a new session; `forget` is called for each that leaves memory. `line` and
    `rest` are for the gateway's event loop; the other methods may be called from any thread.
    """

    def __init__(self, begin: Callable[[str], Session], forget: Callable[[Line], None]) -> None:
        self._begin = begin
        self._forget = forget
        self._awake: dict[str, Line] = {}
        self._names: dict[str, str] = {}  # aliases: the session that a name leads to
        self._file: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # guards the file, and moves between it and memory
        # the file may hold passwords that clients sent: no other and no later process can read them
        self._cipher = AESGCM(AESGCM.generate_key(128))
        self._nonces = itertools.count()

    def line(self, name: str) -> Line:
        """Return the session of that name. Create it if it is new."""
        if self._names:
            name = self._names.get(name, name)
        line = self._awake.get(name)
        if line is None:
            with self._lock:
                line = self._asleep(name)
                if line is None:
                    line = Line(name, self._begin(name))
                elif self._file is not None:
                    self._file.execute("DELETE FROM lines WHERE name = ?", (name,))
                self._awake[name] = line
        return line

    def known(self, name: str) -> Line | None:
        """Return a session as it is now, None if it never sent a request."""
        name = self._names.get(name, name)
        with self._lock:
            return self._awake.get(name) or self._asleep(name)

    def rename(self, name: str, session: str) -> None:
        """Make a name lead to another session."""
        self.line(session)
        self._names[name] = session

    def counts(self) -> dict[str, int]:
        """Return the number of requests by session."""
        with self._lock:
            rows = self._file.execute("SELECT name, seq FROM lines").fetchall() if self._file else []
            return {**dict(rows), **{name: line.seq for name, line in list(self._awake.items())}}

    def rest(self) -> Iterator[None]:
        """Move idle sessions into the file, a few at a time. Raises sqlite3.Error if there is no room."""
        now = time.monotonic()
        moved = 0
        for line in list(self._awake.values()):
            if line.clients or line.seq != line.seen:
                line.seen, line.since = line.seq, now
            elif now - line.since > REST and not line.waiting:
                line.since = now  # if it can't be moved now, others get their turn first
                self._put(line)
                moved += 1
                if moved % AT_ONCE == 0:
                    yield

    def _put(self, line: Line) -> None:
        line.talks = []  # their connections are gone
        nonce = next(self._nonces).to_bytes(12)
        kept = nonce + self._cipher.encrypt(nonce, pickle.dumps(line, pickle.HIGHEST_PROTOCOL), None)
        with self._lock:
            if self._file is None:  # an unnamed file in the system's temporary folder, gone with this process
                self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._file.execute("PRAGMA journal_mode = OFF")
                self._file.execute("CREATE TABLE lines (name TEXT PRIMARY KEY, seq INTEGER, line BLOB)")
            self._file.execute("INSERT INTO lines VALUES (?, ?, ?)", (line.name, line.seq, kept))
            del self._awake[line.name]
        self._forget(line)

    def _asleep(self, name: str) -> Line | None:
        if self._file is None:
            return None
        row = self._file.execute("SELECT line FROM lines WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        line: Line = pickle.loads(self._cipher.decrypt(row[0][:12], row[0][12:], None))
        return line

    def __del__(self) -> None:
        if (file := getattr(self, "_file", None)) is not None:
            file.close()
