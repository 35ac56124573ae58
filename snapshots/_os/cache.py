"""The cache of derived files that are slow to make: indexes and plain copies of archives made by other tools.

It lies in the user's cache directory (or `STILLWEB_CACHE`). File names are hashes of the state of the source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

KEEP = 64  # files; the least recently used are deleted first


def cache_dir() -> Path:
    """Return the directory for derived files, and create it if missing."""
    named = os.environ.get("STILLWEB_CACHE")
    if named:
        path = Path(named)
    else:
        from platformdirs import user_cache_path

        path = user_cache_path("stillweb") / "derived"
    path.mkdir(parents=True, exist_ok=True)
    return path


def derived_file(name: str, stamp: str, build: Callable[[BinaryIO], None]) -> Path:
    """Return the derived file for `stamp`, and build it if missing. Safe for concurrent processes.

    If the cache directory is not writable, the file is made in the system's temporary directory.
    """
    key = hashlib.sha256(stamp.encode(errors="surrogatepass")).hexdigest()[:32]
    try:
        folder = cache_dir()
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    import tempfile  # imported late: it loads all compression modules

    if not writable:
        folder = Path(tempfile.gettempdir()) / f"stillweb-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{key}-{name}"
    if path.exists():
        os.utime(path)
        return path
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".building-")
    try:
        with os.fdopen(handle, "wb") as out:
            build(out)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _drop_old(folder)
    return path


def _drop_old(folder: Path) -> None:
    files = [p for p in folder.iterdir() if not p.name.startswith(".") and p.is_file()]
    if len(files) <= KEEP:
        return
    times = []
    for path in files:
        try:
            times.append((path.stat().st_mtime, path))
        except FileNotFoundError:  # another process deleted it
            continue
    for _, path in sorted(times)[:-KEEP]:
        path.unlink(missing_ok=True)
