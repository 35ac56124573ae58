"""A text file that holds one thing a line."""

from __future__ import annotations

from pathlib import Path

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.machine.text_files import read_text


def read_lines(path: Path) -> list[str]:
    """The lines that hold something, stripped. UsageError names the file: it can't be read, or nothing is in it."""
    text = read_text(path, "utf-8-sig")
    if "\0" in text:
        raise UsageError(f"{path}: is no text")
    lines = [line.strip() for line in text.split("\n")]
    if not any(lines):
        raise UsageError(f"{path}: is empty")
    return [line for line in lines if line]
