"""Errors of the operating system while a search index is built: full disk, too many open files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillweb.snapshots.errors import FULL_DISK, MissingCapability

_SYSTEM = re.compile(r"(?:os error|Os \{ code:) (\d+)")  # errno in the text of tantivy's ValueError


@contextmanager
def refused_by_the_machine(folder: Path | None) -> Iterator[None]:
    """Turn the system's errors within the `with` block into MissingCapability, or into OSError.

    OSError is raised if the caller gave the `folder` and so can choose another, and if there are too many open files,
    where another folder wouldn't help.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        number = _number(error)
        if number is None:
            raise
        said = os.strerror(number) if number != errno.EIO else "a file could not be written"
        if folder is not None or number in (errno.EMFILE, errno.ENFILE):
            raise OSError(number, said, str(folder or "the search index")) from error
        raise MissingCapability(
            f"the search index can't be kept in the directory for temporary files: {said}; make room there, or name "
            "another one in TMPDIR"
        ) from error


def _number(error: OSError | ValueError) -> int | None:
    """Return the errno of an error of the index; None for other errors, such as those in reading the texts."""
    if isinstance(error, OSError):
        return error.errno if error.errno in FULL_DISK else None
    if found := _SYSTEM.search(str(error)):
        return int(found[1])
    return errno.EIO if "io::Error" in str(error) else None  # from tantivy's thread, without an errno
