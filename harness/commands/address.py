"""Words of a command line that end in an address."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click


def split_address(words: Sequence[str], what: str) -> tuple[list[str], str]:
    """The snapshots, and the address (`what`: "a URL") after them. click's UsageError says what is wrong with the words."""
    if len(words) < 2:
        raise click.UsageError(f"give one or more snapshots and then {what}")
    *paths, address = words
    if "://" in paths[0] and os.path.exists(address):  # pathlib's raises for what is longer than any path
        raise click.UsageError(f"{address!r} comes first: one or more snapshots and then {what}")
    if "://" not in address and not address.startswith("urn:"):
        raise click.UsageError(f"{address!r} is no URL; it begins with http:// or https://")
    return paths, address
