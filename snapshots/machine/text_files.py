"""Text files that a user gives."""

from __future__ import annotations

from pathlib import Path

from snapshots.errors import UsageError


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file in UTF-8 ("utf-8-sig": also after its mark). UsageError names a file that can't be read."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from None
