"""Replacement of the system's CA list for an isolated program.

It is for libcurl and GnuTLS programs, which read this list and no variable. It happens in a mount namespace
of our own, so no other program sees it. It works only if the list is one file, as in Debian, Fedora,
openSUSE, Alpine and their derivatives.
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
    """Mount `pem` over the system's CA lists, for this process and its children.

    Returns None, or why it failed. Call it in a namespace made by `isolation.enter_isolation`.
    """
    places = sorted({os.path.realpath(place) for place in lists if os.path.isfile(place)})
    if not places or not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    # slave: later mounts outside show up inside, mounts inside don't show up outside
    failed = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)
    for place in places:
        failed = failed or libc.mount(os.fsencode(pem.absolute()), os.fsencode(place), None, MS_BIND, None)
    if not failed:
        return None
    return (
        f"the system's list of authorities can't be replaced ({os.strerror(ctypes.get_errno())}): "
        "programs that read only that one don't trust our certificate"
    )
