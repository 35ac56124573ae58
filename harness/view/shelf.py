"""Snapshots that are looked at: opened when first asked for, and kept open."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.remote import is_remote
from stillweb.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Listed:
    """Members of a capture that lists show."""

    urlkey: str
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


class Shelf:
    """Open snapshots by name. A snapshot of layers has the name of its top layer."""

    def __init__(self, paths: Mapping[str, Path | str]) -> None:
        self._paths: dict[str, tuple[str, ...]] = {name: (str(path),) for name, path in paths.items()}
        self._at: dict[str, str] = {}
        self._open: dict[str, Snapshot] = {}
        self._captures: dict[str, list[Listed]] = {}
        self._by_url: dict[str, dict[str, list[Listed]]] = {}
        self._lock = threading.RLock()

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
        """Return the paths of a snapshot's layers."""
        return self._paths[name]

    def get(self, name: str) -> Snapshot | None:
        """Return an open snapshot, or None for an unknown name. Raise UsageError or DamagedInput."""
        if name not in self._paths:
            return None
        with self._lock:
            if name not in self._open:
                self._open[name] = Snapshot.open(*self._paths[name], at=self._at.get(name, ""))
            return self._open[name]

    def captures(self, name: str) -> list[Listed]:
        """Return the members of all captures that lists show; read once."""
        snapshot = self.get(name)
        if snapshot is None:
            return []
        with self._lock:
            if name not in self._captures:
                self._captures[name] = [
                    Listed(c.urlkey, c.url, c.method, c.status, c.mime, c.timestamp, c.filename, c.offset, c.digest, c.session)
                    for c in snapshot.captures()
                ]  # fmt: skip
            return self._captures[name]

    def listed(self, name: str, url: str) -> list[Listed]:
        """Return the captures of a URL."""
        captures = self.captures(name)
        with self._lock:
            if name not in self._by_url:
                found: dict[str, list[Listed]] = {}
                for one in captures:
                    found.setdefault(one.url, []).append(one)
                self._by_url[name] = found
            return self._by_url[name].get(url, [])

    def capture(self, name: str, file: str, offset: int) -> Capture | None:
        """Return the capture at a place of the archives, or None."""
        one = next((c for c in self.captures(name) if (c.file, c.offset) == (file, offset)), None)
        return self._whole(name, one) if one else None

    def capture_of(self, name: str, url: str, digest: str) -> Capture | None:
        """Return the first capture of a URL whose payload has this digest, or None."""
        one = next((c for c in self.listed(name, url) if c.digest == digest), None)
        return self._whole(name, one) if one else None

    def _whole(self, name: str, one: Listed) -> Capture | None:
        snapshot = self.get(name)
        found = snapshot.candidates(one.urlkey) if snapshot else ()
        return next((c for c in found if c.place == (one.file, one.offset)), None)

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
        """Close the snapshots."""
        with self._lock:
            for snapshot in self._open.values():
                snapshot.close()
            self._open.clear()


def _absolute(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(one if is_remote(one) else str(Path(one).resolve()) for one in paths)
