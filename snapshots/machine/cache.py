"""What can be derived again and costs time: indexes and plain copies of archives made by others.

Kept in the user's cache directory (or `STILLWEB_CACHE`), named by what the source was when they were made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

KEEP = 64  # files; the ones used longest ago go first


def cache_dir() -> Path:
    """The directory for derived files; made when missing."""
    named = os.environ.get("STILLWEB_CACHE")
    if named:
        path = Path(named)
    else:
        from platformdirs import user_cache_path

        path = user_cache_path("stillweb") / "derived"
    path.mkdir(parents=True, exist_ok=True)
    return path


def derived(name: str, stamp: str, build: Callable[[BinaryIO], None]) -> Path:
    """The derived file for `stamp`, built if it is not there. Several processes may ask at once.

    Without a writable cache directory the file is made in the system's temporary one.
    """
    key = hashlib.sha256(stamp.encode(errors="surrogatepass")).hexdigest()[:32]
    try:
        folder = cache_dir()
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    import tempfile  # which brings all compressors along

    if not writable:
        folder = Path(tempfile.gettempdir()) / f"stillweb-{os.getuid() if hasattr(os, 'getuid') else 0}"
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
        except FileNotFoundError:  # another process was quicker
            continue
    for _, path in sorted(times)[:-KEEP]:
        path.unlink(missing_ok=True)
