"""Persistent full-text indexes: built once for a snapshot, then opened from the cache.

An index is a directory in the user's cache (`cache.cache_dir`), named by the inputs that decide its answers:
the snapshot's id, the versions of tantivy and jieba, Unicode's tables and this code. It is no part of the
snapshot, which stays unchanged. Its files are checked against the digests in its stamp whenever it is opened.
An index that fails the check is rebuilt. If nothing can be written to the cache, an index lives as long as
its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots._os.locking import lock
from stillweb.snapshots.text.search import SearchIndex

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

FORMAT = "stillweb search index 4"
MANY = 500  # number of texts from which an index is kept; fewer are indexed in a moment
KEEP = 8  # most indexes kept; the least recently used are deleted
ABANDONED = 86_400  # seconds after which an unfinished index is deleted
STAMP = "stamp.json"
NAMED = "{}-search"
Progress = Callable[[int, int], None]  # texts indexed, texts in all


def index_of(snapshot: Snapshot, *, progress: Progress | None = None) -> SearchIndex:
    """Return the search index over all frozen texts of a snapshot: the kept index, or a new one.

    `progress` is called only while an index is built. If several processes ask at once, one builds and the
    others wait.
    """
    count = snapshot.count_texts()

    def advance(done: int) -> None:
        if progress is not None:
            progress(done, count)

    if count < MANY:
        return SearchIndex(snapshot.texts(), progress=advance)
    stamp = _stamp(snapshot.id)
    try:
        folder = cache_dir()
        with open(folder / f".{stamp}.lock", "a+b") as alone:
            lock(alone.fileno(), None)
            kept = folder / NAMED.format(stamp)
            found = _opened(kept, stamp)
            if found is None:
                _build(snapshot, folder, kept, stamp, advance)
                found = _opened(kept, stamp)
                _drop_old(folder)
    except OSError:  # no room, no right to write
        found = None
    return found or SearchIndex(snapshot.texts(), progress=advance)


def is_ready(snapshot: Snapshot) -> bool:
    """Return True if `index_of` needs no long build: an index is kept, or the texts are few."""
    if snapshot.count_texts() < MANY:
        return True
    try:
        return (cache_dir() / NAMED.format(_stamp(snapshot.id)) / STAMP).exists()
    except OSError:
        return False


def _stamp(snapshot_id: str) -> str:
    parts = [FORMAT, snapshot_id, version("tantivy"), version("jieba"), unicodedata.unidata_version]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _opened(kept: Path, stamp: str) -> SearchIndex | None:
    """Open the kept index; return None if it is absent or differs from its stamp."""
    try:
        written = json.loads((kept / STAMP).read_bytes())
        if (
            not isinstance(written, dict)
            or written.get("stamp") != stamp
            or written.get("files") != _digests(kept)
        ):
            return None
        os.utime(kept)
        return SearchIndex.kept(kept)
    except (OSError, ValueError):
        return None


def _build(snapshot: Snapshot, folder: Path, kept: Path, stamp: str, advance: Callable[[int], None]) -> None:
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".building-"))
    try:
        SearchIndex(snapshot.texts(), progress=advance, folder=temporary).close()
        written = {"stamp": stamp, "snapshot": snapshot.id, "files": _digests(temporary)}
        (temporary / STAMP).write_text(json.dumps(written), encoding="utf-8")
        shutil.rmtree(kept, ignore_errors=True)
        temporary.rename(kept)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    """Map each file name to its BLAKE2b, except the stamp and tantivy's lock files.

    Tantivy changes its lock files when it opens an index.
    """
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != STAMP and path.suffix != ".lock":
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    return found


def _drop_old(folder: Path) -> None:
    times = []
    for path in folder.glob(NAMED.format("*")):
        with contextlib.suppress(OSError):  # another process deleted it first
            times.append((path.stat().st_mtime, path))
    for path in folder.glob(".building-*"):  # left by a killed process
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
    for _, path in sorted(times)[:-KEEP]:
        shutil.rmtree(path, ignore_errors=True)
        (folder / f".{path.name.partition('-')[0]}.lock").unlink(missing_ok=True)
