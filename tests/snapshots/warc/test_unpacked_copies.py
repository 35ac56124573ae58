"""Files whose records can't be read by offset are read from a plain copy."""

from pathlib import Path

import pytest

from tests.snapshots.malformed import NEXT, PAGE, bodies, http, opened, other, packed, record


def test_one_that_is_too_large_to_be_indexed_at_each_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stillweb.snapshots.index.build.SMALL", 0)
    for _ in range(2):  # the second time the index is in the cache
        with opened(tmp_path, packed(record(http()) + other())) as snapshot:
            assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
