"""Errors shown to the user; each says where, what is wrong and what to do, in one line."""

from __future__ import annotations

import errno
import os

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DISK = FULL_DISK | {errno.EIO, errno.EROFS, errno.ESTALE}
NOTHING = "nothing was written: free some space and try again"


class StillwebError(Exception):
    """Base of all expected failures. `exit_code` is the exit code of the command line."""

    exit_code = 2


class UsageError(StillwebError):
    """A call or user-written file that asks for something invalid."""

    exit_code = 2


class GateFailed(StillwebError):
    """A check requested by the user that did not hold (misses, score, difference)."""

    exit_code = 1


class DamagedInput(StillwebError):
    """A file that does not have the format it claims. Names the file and, if known, the offset."""

    exit_code = 3


class MissingCapability(StillwebError):
    """A requirement that this machine lacks: a browser, namespaces, disk space, a free port."""

    exit_code = 4


class NoRoom(MissingCapability):
    """A full disk or quota, or a limit on the size of files. `why` is what the system says of it."""

    why = ""

    @classmethod
    def at(cls, where: str | os.PathLike[str], why: str | None, then: str = NOTHING) -> NoRoom:
        """Return the error for a full place; `then` says what to do."""
        made = cls(f"{os.fspath(where)}: {why}; {then}")
        made.why = why or ""
        return made


def no_room(error: BaseException, path: str | os.PathLike[str]) -> NoRoom | None:
    """Return the error for a new file or folder that is not made for want of room; None if that is not the reason."""
    if isinstance(error, NoRoom):
        return NoRoom.at(path, error.why)
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return NoRoom.at(path, error.strerror)
    return None
