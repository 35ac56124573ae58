"""What this program calls itself in what it writes."""

from __future__ import annotations

import contextlib
import os
import sys

NAME = "stillweb"


def software_name() -> str:
    """Name and version as written into warcinfo and datapackage.json."""
    found = _installed()
    if not found:
        from importlib.metadata import PackageNotFoundError, version

        with contextlib.suppress(PackageNotFoundError):
            found = version(NAME)
    return f"{NAME}/{found}" if found else NAME


def _installed() -> str:
    """The version that the folder of the installed distribution names, "" where there is none on the path.

    `importlib.metadata` finds the same, but brings a parser of mail along: a tenth of the time that a command takes
    to start.
    """
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):
                if entry.startswith(f"{NAME}-") and entry.endswith(".dist-info"):
                    return entry[len(NAME) + 1 : -len(".dist-info")]
    return ""
