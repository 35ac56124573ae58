"""The name and version of this program, as written into its files."""

from __future__ import annotations

NAME = "stillweb"


def software_name() -> str:
    """Return name and version for warcinfo and datapackage.json."""
    # imports a mail parser: 20 ms, for which only what writes a file should wait
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{NAME}/{version(NAME)}"
    except PackageNotFoundError:
        return NAME
