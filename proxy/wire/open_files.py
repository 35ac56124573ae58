"""How many files this process may have open: every connection is one."""

from __future__ import annotations

import contextlib
import os
import resource

from stillweb.snapshots.errors import MissingCapability

# Far more than is ever needed at once; and what macOS grants where it names no limit (OPEN_MAX in its sys/syslimits.h).
MOST = (65536, 10240)


# More than any command needs to begin with. Where an event loop of uvloop gets none, it aborts the process.
LEAST = 64


def allow_many_open_files(least: int = LEAST) -> None:
    """Raise the soft limit to the hard one, at most to 65536; never lower it. What is started later inherits it.

    Systems begin with 1024 (macOS with 256) for the sake of programs that use select(2). Where none is left, the
    event loop closes a new connection without a word. Raises MissingCapability where fewer than `least` are left.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in MOST:
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        with contextlib.suppress(OSError, ValueError):  # refused: it stays as it is
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
