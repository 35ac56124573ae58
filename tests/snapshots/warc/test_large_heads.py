"""The head of a large answer of others is known without holding its body; it is that of the answer read whole."""

import gzip
from pathlib import Path

import pytest

from stillweb.snapshots.warc import reading
from tests.snapshots.malformed import HEAD, PAGE, http, opened, other, packed, record

SAYS = (
    b"WARC-Refers-To-Target-URI: http://example.test/next\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z\r\n"
    b"WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest"
)
RECORDS = {
    "plain": record(http()),
    "wrong length": record(http(head=HEAD + b"Content-Length: 3\r\n", length=False)),
    "chunked": record(
        http(b"5\r\nhello\r\n0\r\nX: 1\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n", length=False)
    ),
    "gzip": record(http(gzip.compress(PAGE * 5000, mtime=0), HEAD + b"Content-Encoding: gzip\r\n")),
    "no gzip": record(http(PAGE, HEAD + b"Content-Encoding: gzip\r\n")),
    "no head": record(b"just bytes"),
    "resource": record(b"just bytes", kind=b"resource"),
    "revisit": record(http(b""), kind=b"revisit", fields=SAYS),
    "not modified": record(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", kind=b"revisit", fields=SAYS),
    "length too large": record(http(), length=5000),
}


@pytest.mark.parametrize("name", RECORDS)
def test_it_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(reading, "LARGE", 0)
    with opened(tmp_path, packed(RECORDS[name], other())) as snapshot:
        captures = list(snapshot.captures())
        assert len(captures) == 2
        for capture in captures:
            head, whole = snapshot.head(capture), snapshot.read(capture)
            assert (head.status, head.reason, head.headers) == (whole.status, whole.reason, whole.headers)


def test_damage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE", 0)
    data = bytearray(packed(RECORDS["gzip"], other()))
    with opened(tmp_path, bytes(data)) as snapshot:
        capture = next(c for c in snapshot.captures() if c.url == "http://example.test/")
        data[capture.offset + capture.length // 2] ^= 0x55
        (tmp_path / "x.warc.gz").write_bytes(data)
        with pytest.raises(Exception, match=r"x\.warc\.gz: the record at offset 0 is"):
            snapshot.head(capture)
