"""Arguments of commands that take snapshots and then an address."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click


def split_address(words: Sequence[str], what: str) -> tuple[list[str], str]:
    """Split the arguments into snapshots and the address (`what`: "a URL") after them. Raise click's UsageError."""
    if len(words) < 2:
        raise click.UsageError(f"give one or more snapshots and then {what}")
    *paths, address = words
    if "://" in paths[0] and os.path.exists(address):  # Path.exists raises for a name that is too long
        raise click.UsageError(f"{address!r} comes first: one or more snapshots and then {what}")
    if "://" not in address and not address.startswith("urn:"):
        raise click.UsageError(f"{address!r} is no URL; it begins with http:// or https://")
    return paths, address
