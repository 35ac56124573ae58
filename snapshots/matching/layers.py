"""The layers of a snapshot that lies over others, told by the names of its files."""

from __future__ import annotations

import re

_LAYER = re.compile(r"layer(\d+)/")  # as a snapshot of several names the files of those above the first


def layer_of(filename: str) -> int:
    """The number of a file's layer, from 1."""
    found = _LAYER.match(filename)
    return int(found[1]) if found else 1
