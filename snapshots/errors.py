"""Errors shown to the user; each says where, what is wrong and what to do, in one line."""


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
