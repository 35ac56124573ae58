"""The limit of open files of this process: every connection is one."""

from __future__ import annotations

import contextlib
import os
import resource

from stillweb.snapshots.errors import MissingCapability

# Far more than is ever needed at once; and the limit of macOS where it reports none (OPEN_MAX in sys/syslimits.h).
MOST = (65536, 10240)


# More than any command needs at its start. If uvloop gets no descriptor, it aborts the process.
LEAST = 64


def allow_many_open_files(least: int = LEAST) -> None:
    """Raise the soft limit to the hard one, at most to 65536; never lower it. Children inherit it.

    Systems start with 1024 (macOS with 256) for the sake of programs that use select(2). Without a free
    descriptor the event loop silently closes new connections. Raises MissingCapability if fewer than `least`
    descriptors are free.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in MOST:
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        with contextlib.suppress(OSError, ValueError):  # refused: keep the current limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    opened: list[int] = []
    try:
        while len(opened) < least:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise MissingCapability(
            f"too few files may be opened ({len(opened)} more, at least {least} are needed: {error.strerror}). "
            "Raise the limit of open files (ulimit -n)"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
