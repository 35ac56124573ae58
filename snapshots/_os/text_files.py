"""Text files from users."""

from __future__ import annotations

import codecs
from pathlib import Path

from stillweb.snapshots.errors import UsageError


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a UTF-8 file ("utf-8-sig" skips a byte order mark).

    Raises UsageError that names the file.
    """
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {not_utf8(error)}") from None


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the byte where a text stops being UTF-8, with advice for UTF-16, as Windows programs save it."""
    utf16 = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return f"not UTF-8 at byte {error.start}" + ("; it is UTF-16: save it as UTF-8" if utf16 else "")
