"""Texts in one file, by number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stillweb.snapshots.text.shown import Shown


def test_texts_come_back_by_number_from_any_thread(tmp_path: Path) -> None:
    texts = ["", "a", "企鹅 🐧 " * 5000, "\ud800 alone", "x" * 200_000]
    shown = Shown(tmp_path / "shown")
    for text in texts:
        shown.add(text)
    shown.flush()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shown.__getitem__, list(range(5)) * 20)) == texts * 20
    assert (tmp_path / "shown").stat().st_size < 20_000
    shown.close()
    shown.close()
