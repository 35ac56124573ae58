"""Answers that are kept while states are found are those that are read; heads of records are read alike both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.snapshots._os.places import BytesPlace
from stillweb.snapshots.index import stating
from stillweb.snapshots.index.stating import _Remembering
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.messages import set_cookies
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from tests.snapshots.malformed import http, other, packed
from tests.snapshots.malformed import record as warc_record

PAGE = b"<p>a page</p>"


def foreign() -> bytes:
    """Revisits as others write them: with a head, with none, not modified, and a resource."""
    profile = b"WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest\r\n"
    digest = b"WARC-Payload-Digest: sha1:ABC"
    same = profile + b"WARC-Refers-To-Target-URI: http://example.test/\r\n" + digest
    head = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    records = [warc_record(http(PAGE), fields=digest)]
    for number, block in enumerate((head % b"200 OK", b"", head % b"304 Not Modified"), 2):
        records.append(warc_record(block, kind=b"revisit", number=number, fields=same))
    records.append(warc_record(PAGE, kind=b"resource", number=8, uri=b"http://example.test/r"))
    return packed(*records, other())


@pytest.mark.parametrize("room", [1 << 20, 20])
def test_kept_answers_are_those_that_are_read(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stating, "REMEMBERED", room)
    with Writer.open(tmp_path / "s") as writer:
        for number in range(4):
            fields = (("Content-Type", "text/html"), ("Set-Cookie", f"n={number}"))
            record(writer, "http://example.test/", PAGE, headers=fields)
            record(writer, "http://example.test/", b"<p>%d</p>" % number, status=304 if number == 2 else 200)
            record(writer, "http://example.test/", b"", method="HEAD", headers=fields)
    (tmp_path / "s" / "archive" / "other.warc.gz").write_bytes(foreign())
    with Snapshot.open(tmp_path / "s") as snapshot:
        archives = snapshot._archives
        captures = list(snapshot.captures())
        assert len(captures) == 18
        assert sum(c.original is not None for c in captures) == 6
        kept = _Remembering(archives.files)
        for capture in captures * 2:
            read = archives.read(capture)
            assert kept.read(capture) == read
            assert kept.cookies(capture) == set_cookies(read.headers)


@pytest.mark.parametrize(
    "change",
    [
        (b"", b""),
        (b"WARC/1.1", b"WARC/1.0"),
        (b"WARC-Stillweb-Session", b"warc-stillweb-session"),
        (b"WARC-Stillweb-Session", b"WARC-STILLWEB-Session"),
        (b"WARC-Stillweb-Session", b"WARC-Other-Session"),
        (b"WARC-Date: ", b"content-length: 3\r\nWARC-Date: "),
        (b"WARC-Date: ", b"WARC-TYPE: request\r\nWARC-Date: "),
        (b"WARC-Date: ", b" folded: x\r\nWARC-Date: "),
        (b"WARC-Type: response", b"WARC-Type: Response"),
        (b"Content-Length: ", b"Content-Length: 9"),
        (b"Content-Length: ", b"Content-Length: x"),
        (b"\r\n\r\n", b"\n\n"),
    ],
)
def test_a_plain_head_is_read_as_every_head_is(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    with Writer.open(tmp_path / "s") as writer:
        capture = record(writer, "http://example.test/", PAGE)
    data = (tmp_path / "s" / "archive" / "data-00000.warc.gz").read_bytes()
    whole = warc.unpack(data[capture.offset :][: capture.length], BytesPlace(data), 0)
    # a block of another length has another digest than it declares, which is damage
    whole = whole.replace(b"WARC-Block-Digest", b"WARC-Other-Digest").replace(*change, 1)
    found = warc.read_record(BytesPlace(whole), 0, len(whole))
    head = warc.parse_head(whole)
    assert head is not None
    fields, start = head
    assert (found.fields, found.kind) == (fields, fields["warc-type"].lower())
    assert found.ours == ("warc-stillweb-session" in fields)
    declared = warc.declared_length(fields)
    assert found.declared == declared
    fits = 0 <= declared <= len(whole) - start
    assert found.block == (whole[start:][:declared] if fits else whole[start:].removesuffix(b"\r\n\r\n"))
