"""What is told of the pages that a prompt is built from."""

from __future__ import annotations

from pathlib import Path

from stillweb.harness.benchmarks.browsecomp.prompts import PageReader
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import SITE, Recorder
from tests.snapshots.text.test_text import ARTICLE


def test_a_page_of_which_the_recording_does_not_decide_is_told(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/first", ARTICLE)
        sent = b'{"user":"ann"}'
        site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
        site.add(f"{SITE}/home", ARTICLE)
    with Snapshot.open(tmp_path / "snap") as snapshot:
        reader = PageReader(snapshot)
        told = "the recording does not decide that it is this answer"
        assert [told in reader.read(SITE + path).notes for path in ("/first", "/home")] == [False, True]
