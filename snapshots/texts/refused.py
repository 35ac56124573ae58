"""What the system refuses a search index while it is built: room, a file to open."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillweb.snapshots.archives.appending import FULL_DISK
from stillweb.snapshots.errors import MissingCapability

_SYSTEM = re.compile(r"(?:os error|Os \{ code:) (\d+)")  # in what tantivy says of it, as a ValueError


@contextmanager
def refused_by_the_machine(folder: Path | None) -> Iterator[None]:
    """Raises MissingCapability; OSError of a `folder` of the caller's, who may choose another, and where no other would do."""
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
    """The system's number of an error; None for one of another kind, or of what the texts are read from."""
    if isinstance(error, OSError):
        return error.errno if error.errno in FULL_DISK else None
    if found := _SYSTEM.search(str(error)):
        return int(found[1])
    return errno.EIO if "io::Error" in str(error) else None  # of its thread, which does not tell the number
