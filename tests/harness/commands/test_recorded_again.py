"""Archives of several years in one snapshot: what they answer otherwise is told when they are taken in."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange


def crawl(path: Path, year: int, **pages: bytes) -> Path:
    """A snapshot of one second of that year."""
    with Writer.open(path) as writer:
        for name, body in pages.items():
            one = exchange(f"https://a.test/{name}", body)
            one.started = datetime(year, 3, 1, tzinfo=UTC)
            writer.exchange(one)
    return path


def test_an_import_says_what_was_answered_otherwise_in_another_year(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = crawl(tmp_path / "early", 2019, birds=b"Birds of 2019", style=b"body {}")
    late = crawl(tmp_path / "late", 2024, birds=b"Birds of 2024", style=b"body {}")
    told = "answered otherwise on another day: 1 of its requests, such as https://a.test/birds (20190301, 20240301)"
    for files, said in (((late, early), True), ((late,), False)):
        out = tmp_path / f"site {len(files)}"
        with pytest.raises(SystemExit) as ended:
            main(["import", *map(str, files), "-o", str(out)])
        assert not ended.value.code
        assert (told in capsys.readouterr().err) is said


def test_an_import_says_that_a_file_was_taken_in_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = crawl(tmp_path / "early", 2019, birds=b"Birds of 2019", style=b"body {}")
    for said in (False, True):
        with pytest.raises(SystemExit) as ended:
            main(["import", str(early), "-o", str(tmp_path / "site")])
        assert not ended.value.code
        told = "present twice, with the same time and answer: 2 captures; was a file imported before?"
        assert (told in capsys.readouterr().err) is said
