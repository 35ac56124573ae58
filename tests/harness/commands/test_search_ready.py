"""Where no text is frozen no search finds anything, and that is said."""

from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.snapshots.wacz import seal
from tests.snapshots.making import small_snapshot

TOLD = "no text is frozen in it, so no search finds anything"


def test_a_search_without_frozen_texts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was 'nothing found' of a WARC that had the word on its page."""
    with_texts = small_snapshot(tmp_path / "site")
    seal(with_texts)
    (warc,) = (small_snapshot(tmp_path / "crawl") / "archive").iterdir()
    for path, said in ((tmp_path / "site.wacz", False), (warc, True)):
        with pytest.raises(SystemExit) as ended:
            main(["search", str(path), "kestrel"])
        assert not ended.value.code
        assert (TOLD in capsys.readouterr().err) is said
