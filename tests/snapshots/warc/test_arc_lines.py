"""ARC record lines: what is one, and that what is none is seen to be none at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.warc import parse_head, starts_record

LINE = b"http://example.test/a b 192.0.2.1 20200102030405 text/html 12"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \t\r\n"])
def test_a_record_line(end: bytes) -> None:
    found = parse_head(b"before\n" + LINE + end + b"block", 7)
    assert found is not None
    fields, start = found
    assert (fields["warc-target-uri"], fields["content-length"]) == ("http://example.test/a b", "12")
    assert start == 7 + len(LINE + end)


def test_a_record_line_of_arc_2() -> None:
    line = b"http://example.test/a b 192.0.2.1 20200102030405 text/html 200 fac069150613fe55 - 12345678 x.arc 12\n"
    found = parse_head(line)
    assert found is not None
    told = [found[0][name] for name in ("warc-target-uri", "warc-date", "content-length")]
    assert told == ["http://example.test/a b", "2020-01-02T03:04:05Z", "12"]


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE + b"\r\r\n",
        LINE + b" x\n",
        b"\r" + LINE + b"\n",
        b"no name 20200102030405 12\n",
        b"http://example.test/ 20200102030405 \n",
        b"http://example.test/ 2020010 12\n",
    ],
)
def test_no_record_line(line: bytes) -> None:
    assert not starts_record(line)


def test_what_is_no_archive_is_told_without_thinking_for_hours(tmp_path: Path) -> None:
    path = tmp_path / "one.line"
    path.write_bytes(b"a: 12345678 " * 200_000)
    begun = time.process_time()
    with pytest.raises(DamagedInput, match="is no WACZ"):
        Snapshot.open(path)
    assert time.process_time() - begun < 2
