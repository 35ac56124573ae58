"""The name and version of this program, as written into its files."""

from __future__ import annotations

import contextlib
import os
import sys

NAME = "stillweb"


def software_name() -> str:
    """Return name and version for warcinfo and datapackage.json."""
    found = _installed()
    if not found:
        from importlib.metadata import PackageNotFoundError, version

        with contextlib.suppress(PackageNotFoundError):
            found = version(NAME)
    return f"{NAME}/{found}" if found else NAME


def _installed() -> str:
    """Return the version in the name of the installed .dist-info folder; "" if there is none on the path.

    `importlib.metadata` finds the same, but it imports a mail parser, which takes a tenth of a command's
    start-up time.
    """
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):
                if entry.startswith(f"{NAME}-") and entry.endswith(".dist-info"):
                    return entry[len(NAME) + 1 : -len(".dist-info")]
    return ""
