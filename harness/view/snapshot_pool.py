"""Snapshots that are looked at: opened when first asked for, and kept open."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.remote import is_remote

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Hit, Snapshot


FRESH = 1.0  # seconds for which a snapshot's folder is taken as unchanged
UNDER_WAY = 20.0  # seconds after its last change in which a recording is taken as under way
LEARNT = 20_000  # captures of a snapshot whose evidence lookups keep: 2 KB each


@dataclass(frozen=True, slots=True)
class ListedCapture:
    """Members of a capture that lists show."""

    url: str
    method: str
    status: int
    mime: str
    timestamp: str
    file: str
    offset: int
    digest: str
    session: str

    @property
    def path(self) -> str:
        """Return the last part of the address of the capture's page."""
        return f"capture/{self.offset}?file={quote(self.file, safe='')}"


class SnapshotPool:
    """Open snapshots by name. A snapshot of layers has the name of its top layer."""

    def __init__(self, paths: Mapping[str, Path | str]) -> None:
        self._paths: dict[str, tuple[str, ...]] = {name: (str(path),) for name, path in paths.items()}
        self._at: dict[str, str] = {}
        self._open: dict[str, Snapshot] = {}
        self._captures: dict[str, list[ListedCapture]] = {}
        self._states: dict[str, tuple[float, Any]] = {}  # when a folder was looked at, and its state then
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._listing = threading.Lock()  # so that no page waits for a list that it does not show

    @property
    def names(self) -> list[str]:
        """Return the names, in the order of the command line."""
        return list(self._paths)

    def put(self, paths: Sequence[str], at: str = "") -> str:
        """Put a snapshot, as of a date, on the shelf if it is not there, and return its name."""
        wanted = _absolute(paths)
        for name, known in self._paths.items():
            if wanted == _absolute(known) and at == self._at.get(name, ""):
                return name
        base = re.sub(r"[^\w.-]", "_", Path(wanted[-1]).name) or "snapshot"
        name, count = base, 1
        while name in self._paths:
            count += 1
            name = f"{base}-{count}"
        self._paths[name], self._at[name] = tuple(paths), at
        return name

    def paths(self, name: str) -> tuple[str, ...]:
        return self._paths[name]

    def get(self, name: str) -> Snapshot | None:
        """Return an open snapshot, or None for an unknown name. Raise UsageError or DamagedInput."""
        from stillweb.snapshots.snapshot import Snapshot

        if name not in self._paths:
            return None
        with self._lock:
            if self._grew(name):
                # not closed: a page that is being made may still read it; its files close when it is collected
                self._open.pop(name, None)
                self._captures.pop(name, None)
            if name not in self._open:
                self._open[name] = Snapshot.open(*self._paths[name], at=self._at.get(name, ""))
            return self._open[name]

    def _grew(self, name: str) -> bool:
        """Return True if an open snapshot is recorded into since it was opened."""
        then, state = self._states.get(name, (0.0, None))
        if time.monotonic() - then < FRESH and name in self._open:
            return False
        now = [_state_of(Path(path)) for path in self._paths[name] if not is_remote(path)]
        self._states[name] = time.monotonic(), now
        if state is None or state == now:
            return False
        self._versions[name] = self.version(name) + 1
        return True

    def version(self, name: str) -> int:
        """Return a number that rises when a snapshot is opened anew, since it was recorded into."""
        return self._versions.get(name, 0)

    def under_way(self, name: str) -> bool:
        """Return True if a snapshot was recorded into within the last seconds."""
        _, state = self._states.get(name, (0.0, None))
        last = max((moment for files in state or () for _, _, moment in files), default=0)
        return time.time() - last / 1e9 < UNDER_WAY

    def captures(self, name: str) -> list[ListedCapture]:
        """Return the members of all captures that lists show; read once, which takes 10 µs a capture."""
        snapshot = self.get(name)
        if snapshot is None:
            return []
        with self._listing:
            if name not in self._captures:
                self._captures[name] = [_listed(capture) for capture in snapshot.captures()]
            return self._captures[name]

    def first(self, name: str, count: int) -> list[ListedCapture]:
        """Return the first captures, without reading all."""
        snapshot = self.get(name)
        return [_listed(capture) for capture in islice(snapshot.captures(), count)] if snapshot else []

    def listed(self, name: str, url: str) -> list[ListedCapture]:
        return [_listed(capture) for capture in self._captures_of(name, url)]

    def _captures_of(self, name: str, url: str) -> list[Capture]:
        from stillweb.snapshots.identity.keys import split_url
        from stillweb.snapshots.identity.urlkeys import path_prefix

        snapshot = self.get(name)
        if snapshot is None:
            return []
        start = path_prefix(split_url(url)[0])
        found = chain(snapshot.candidates(start), snapshot.prefix(f"{start}?"))
        return [capture for capture in found if capture.url == url]

    def capture(self, name: str, file: str, offset: int) -> Capture | None:
        """Return the capture at a place of the archives, or None."""
        snapshot = self.get(name)
        return snapshot.capture_at((file, offset)) if snapshot else None

    def lookup(self, name: str, request: Request) -> Hit:
        """Look a request up for a new session. The first of a large site takes seconds, in which the site is learnt.

        What is learnt of sites is kept of the last ones only: all that are looked at would fill the memory.
        """
        snapshot = self.get(name)
        assert snapshot is not None
        hit = snapshot.lookup(request)
        snapshot.matcher().forget(LEARNT)
        return hit

    def capture_of(self, name: str, url: str, digest: str) -> Capture | None:
        """Return the first capture of a URL whose payload has this digest, or None."""
        return next((c for c in self._captures_of(name, url) if c.digest == digest), None)

    def page_of(
        self, name: str, view: str | None, address: str | None, captures: Sequence[Mapping[str, Any]]
    ) -> str:
        """Return the last part of the address of the page that a tool call saw; "" if the snapshot has none."""
        try:
            snapshot = self.get(name)
            if snapshot is None:
                return ""
            for one in (view, address):
                found = snapshot.view(one) if one else None
                if found is not None:
                    return f"view/{found.id}"
        except (StillwebError, OSError):  # the snapshot's own page says what is wrong
            return ""
        if captures:
            return f"capture/{captures[-1]['offset']}?file={quote(captures[-1]['file'], safe='')}"
        return ""

    def brief(self, name: str) -> dict[str, Any]:
        """Return paths and views of a snapshot, and why it can't be opened ("" if it can)."""
        try:
            snapshot = self.get(name)
            return {"paths": self._paths[name], "views": len(snapshot.views()) if snapshot else 0, "why": ""}
        except (StillwebError, OSError) as error:
            return {"paths": self._paths[name], "views": 0, "why": str(error)}

    def close(self) -> None:
        with self._lock:
            for snapshot in self._open.values():
                snapshot.close()
            self._open.clear()


def _listed(c: Capture) -> ListedCapture:
    return ListedCapture(
        c.url, c.method, c.status, c.mime, c.timestamp, c.filename, c.offset, c.digest, c.session
    )


def _state_of(path: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the archives of an open snapshot; [] for a file, which never grows."""
    try:
        with os.scandir(path / "archive") as entries:
            return sorted((one.name, (found := one.stat()).st_size, found.st_mtime_ns) for one in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _absolute(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(one if is_remote(one) else str(Path(one).resolve()) for one in paths)
