"""Search indexes that are kept: built once for a snapshot, opened at once ever after.

An index is a directory in the user's cache (`cache.cache_dir`), named by what decides its answers: the snapshot's id,
and the versions of tantivy, jieba, Unicode's tables and of this code. It is no part of the snapshot, whose bytes stay
what they were. Its files are checked against the digest of its stamp each time it is opened; one that fails is built
anew, and where nothing can be kept, an index lasts as long as its process.
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
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from stillweb.snapshots.machine.cache import cache_dir
from stillweb.snapshots.texts.search import SearchIndex

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

FORMAT = "stillweb search index 2"
MANY = 500  # texts from which an index is kept; fewer are indexed in a moment
KEEP = 8  # indexes; the ones used longest ago go first
ABANDONED = 86_400  # seconds after which an unfinished index is no one's
STAMP = "stamp.json"
NAMED = "{}-search"
Progress = Callable[[int, int], None]  # texts indexed, of how many


def index_of(snapshot: Snapshot, *, progress: Progress | None = None) -> SearchIndex:
    """The search index over all frozen texts of a snapshot: the kept one, or one built now.

    `progress` is called only while one is built. Several processes may ask at once: one builds, the others wait.
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
        with _alone(folder, stamp):
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
    """Whether `index_of` will give an index at once: one is kept, or the texts are few."""
    if snapshot.count_texts() < MANY:
        return True
    try:
        return (cache_dir() / NAMED.format(_stamp(snapshot.id)) / STAMP).exists()
    except OSError:
        return False


def _stamp(snapshot_id: str) -> str:
    parts = [FORMAT, snapshot_id, version("tantivy"), version("jieba"), unicodedata.unidata_version]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _alone(folder: Path, stamp: str) -> Iterator[None]:
    """One process at a time for one index; no lock where the system has none."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder / f".{stamp}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _opened(kept: Path, stamp: str) -> SearchIndex | None:
    """The kept index; None where there is none or it is not what was written."""
    try:
        told = json.loads((kept / STAMP).read_bytes())
        if not isinstance(told, dict) or told.get("stamp") != stamp or told.get("files") != _digests(kept):
            return None
        os.utime(kept)
        return SearchIndex.kept(kept)
    except (OSError, ValueError):
        return None


def _build(snapshot: Snapshot, folder: Path, kept: Path, stamp: str, advance: Callable[[int], None]) -> None:
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".building-"))
    try:
        SearchIndex(snapshot.texts(), progress=advance, folder=temporary).close()
        told = {"stamp": stamp, "snapshot": snapshot.id, "files": _digests(temporary)}
        (temporary / STAMP).write_text(json.dumps(told), encoding="utf-8")
        shutil.rmtree(kept, ignore_errors=True)
        temporary.rename(kept)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    """Name -> BLAKE2b of every file but the stamp and what tantivy changes as it is opened (its locks)."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != STAMP and path.suffix != ".lock":
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    return found


def _drop_old(folder: Path) -> None:
    times = []
    for path in folder.glob(NAMED.format("*")):
        with contextlib.suppress(OSError):  # another process was quicker
            times.append((path.stat().st_mtime, path))
    for path in folder.glob(".building-*"):  # of a process that was killed
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
    for _, path in sorted(times)[:-KEEP]:
        shutil.rmtree(path, ignore_errors=True)
        (folder / f".{path.name.partition('-')[0]}.lock").unlink(missing_ok=True)
