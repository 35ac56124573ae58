"""A text file that holds one thing a line."""

from __future__ import annotations

from pathlib import Path

from snapshots.errors import UsageError


def read_lines(path: Path) -> list[str]:
    """The lines that hold something, stripped. UsageError names the file: it can't be read, or nothing is in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise UsageError(f"{path}: is no text")
    lines = [line.strip() for line in text.split("\n")]
    if not any(lines):
        raise UsageError(f"{path}: is empty")
    return [line for line in lines if line]
