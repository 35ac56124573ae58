"""How many files this process may have open: every connection is one."""

from __future__ import annotations

import contextlib
import resource

# Far more than is ever needed at once; and what macOS grants where it names no limit (OPEN_MAX in its sys/syslimits.h).
MOST = (65536, 10240)


def allow_many_open_files() -> None:
    """Raises the soft limit to the hard one, at most to 65536; never lowers it. What is started later inherits it.

    Systems begin with 1024 (macOS with 256) for the sake of programs that use select(2). Where none is left, the
    event loop closes a new connection without a word.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in MOST:
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        with contextlib.suppress(OSError, ValueError):  # refused: it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return
