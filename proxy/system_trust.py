"""The system's list of authorities, replaced for an isolated program: libcurl and GnuTLS read it, and no variable.

In a mount namespace of our own, so that nobody else sees it. Only where that list is one file, as Debian, Fedora,
openSUSE, Alpine and what comes of them have it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNS = 0x00020000  # linux/sched.h
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000  # linux/mount.h
SYSTEM_LISTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def replace_system_list(pem: Path, lists: Sequence[str] = SYSTEM_LISTS) -> str | None:
    """Puts `pem` in the place of the system's lists, for this process and what it starts. None, or why it could not.

    To be called in a namespace that `isolation.enter_isolation` has made.
    """
    places = sorted({os.path.realpath(place) for place in lists if os.path.isfile(place)})
    if not places or not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    # what is mounted outside is still seen inside, and nothing the other way round
    failed = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)
    for place in places:
        failed = failed or libc.mount(os.fsencode(pem.absolute()), os.fsencode(place), None, MS_BIND, None)
    if not failed:
        return None
    return (
        f"the system's list of authorities can't be replaced ({os.strerror(ctypes.get_errno())}): "
        "programs that read only that one don't trust our certificate"
    )
