"""A text file is read as UTF-8, or named with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.snapshots._os.text_files import read_text
from stillweb.snapshots.errors import UsageError


def test_text_with_and_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffgrün".encode())
    assert read_text(path) == "\ufeffgrün"
    assert read_text(path, "utf-8-sig") == "grün"


def test_what_is_no_text_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"words\.txt: not UTF-8 at byte 2$"):
        read_text(path)
    path.write_bytes("ab".encode("utf-16"))
    with pytest.raises(UsageError, match=r"words\.txt: not UTF-8 at byte 0; it is UTF-16: save it as UTF-8$"):
        read_text(path)
    with pytest.raises(UsageError, match=r"none: No such file or directory$"):
        read_text(tmp_path / "none")
