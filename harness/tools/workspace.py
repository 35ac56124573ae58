"""Workspace of a session: the folder that its tools know as `/workspace`, the only one that they read.

A path is resolved by its text alone, so that no answer and no trace names a folder of this machine. The file is then
opened from the folder down, one name after the other, without following links. So a program that changes the folder
meanwhile can't lead the tools out of it.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

from stillweb.snapshots.errors import DamagedInput, UsageError

ROOT = PurePosixPath("/workspace")
LARGEST = 50_000_000  # bytes of all files of a call: the browser receives them as text


class OutsideWorkspace(Exception):
    """Error for a path that leads out of the workspace; `path` is the path as the tools know it."""

    def __init__(self, path: PurePosixPath) -> None:
        super().__init__(str(path))
        self.path = path


class Workspace:
    """Files of a session; none without a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def resolve(self, path: str, base: PurePosixPath = ROOT) -> PurePosixPath:
        """Return the absolute path of a file; relative paths begin at `base`. Raise OutsideWorkspace if it leads out."""
        found = PurePosixPath(posixpath.normpath(posixpath.join(base, path)))
        if not found.is_relative_to(ROOT):
            raise OutsideWorkspace(found)
        return found

    def read(self, path: str, most: int = LARGEST) -> bytes:
        """Return the bytes of a file. Raise OutsideWorkspace, or OSError if it is missing, can't be read or has more than `most`."""
        found = self.resolve(path)
        if found == ROOT:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            names = [os.fsencode(name) for name in found.relative_to(ROOT).parts]
        except UnicodeEncodeError:  # half of a surrogate pair
            names = [b"\0"]
        if self.folder is None or any(b"\0" in name for name in names):  # no file has such a name
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        at = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    raise OutsideWorkspace(found)
                # non-blocking: opening a pipe would wait for a writer
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                inner = os.open(name, flags, dir_fd=at)
                os.close(at)
                at = inner
            kind = os.fstat(at)
            if stat.S_ISDIR(kind.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(kind.st_mode):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with os.fdopen(os.dup(at), "rb") as file:
                data = file.read(most + 1)
        finally:
            os.close(at)
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data


def uploads_in(folder: Path) -> dict[str, str]:
    """Return the files below a folder, sorted: relative path (with /) -> `sha256:…`.

    Raise UsageError for anything but a plain file (a link, a pipe), and for a file too large for a page.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(folder).as_posix()
        try:
            data = Workspace(folder).read(name)
        except OutsideWorkspace:
            raise UsageError(f"{path}: a link is not an upload. Put a copy of the file there") from None
        except OSError as error:
            raise UsageError(
                f"{path}: is not an upload: {error.strerror}. Name a folder of plain files"
            ) from None
        found[name] = f"sha256:{sha256(data).hexdigest()}"
    return found


def copy_uploads(source: Path, target: Path, digests: Mapping[str, str]) -> None:
    """Copy files with known digests into a folder. Raise DamagedInput for a missing or changed file."""
    for name, digest in digests.items():
        try:
            # resolved, because a run may come from other people
            place = target / Workspace().resolve(name).relative_to(ROOT)
            data = Workspace(source).read(name)
        except (OSError, OutsideWorkspace):
            raise DamagedInput(f"{source / name}: an upload of the run is missing. Put it back") from None
        if f"sha256:{sha256(data).hexdigest()}" != digest:
            raise DamagedInput(f"{source / name}: is not the upload that the run began with. Put it back")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
