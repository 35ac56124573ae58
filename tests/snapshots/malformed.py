"""Builders of archives as they are met in the wild: one for each thing that other writers get wrong."""

import gzip
from pathlib import Path

import zstandard

from stillweb.snapshots.snapshot import Snapshot

NEXT = "http://example.test/next"
PAGE = b"<html><title>A page</title><p>Some text of it</html>"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def http(body: bytes = PAGE, head: bytes = HEAD, *, length: bool = True) -> bytes:
    """An HTTP response block."""
    extra = b"Content-Length: %d\r\n" % len(body) if length else b""
    return head + extra + b"\r\n" + body


def record(
    block: bytes,
    *,
    kind: bytes = b"response",
    uri: bytes = b"http://example.test/",
    date: bytes = b"2020-01-02T03:04:05Z",
    number: int = 1,
    fields: bytes = b"",
    length: int | None = None,
    version: bytes = b"WARC/1.0",
    end: bytes = b"\r\n\r\n",
    line: bytes = b"\r\n",
) -> bytes:
    """A plain WARC record."""
    media = {
        b"response": b"application/http; msgtype=response",
        b"request": b"application/http; msgtype=request",
    }
    media[b"revisit"] = media[b"response"]
    head = [
        version,
        b"WARC-Type: " + kind,
        b"WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-%012d>" % number,
        b"WARC-Date: " + date,
        b"WARC-Target-URI: " + uri,
        *([fields] if fields else []),
        b"Content-Type: " + media.get(kind, b"text/plain"),
        b"Content-Length: %d" % (len(block) if length is None else length),
    ]
    return line.join(head) + line + line + block + end


def packed(*records: bytes) -> bytes:
    """A gzip member a record."""
    return b"".join(gzip.compress(r, mtime=0) for r in records)


def other(number: int = 9) -> bytes:
    """A sound record to follow the bad one."""
    return record(http(b"the next page"), uri=b"http://example.test/next", number=number)


def arc(*, gz: bool) -> bytes:
    """ARC 1.0: a version block and two documents, one line break after each."""
    version = b"1 0 Somebody\nURL IP-address Archive-date Content-type Archive-length\n"
    head = b"filedesc://x.arc 0.0.0.0 20200102030405 text/plain %d\n" % len(version)
    documents = []
    for url, body in ((b"http://example.test/", PAGE), (b"http://example.test/a b", b"the next page")):
        block = http(body)
        documents.append(b"%s 10.0.0.1 20200102030405 text/html %d\n%s\n" % (url, len(block), block))
    parts = [head + version + b"\n", *documents]
    return packed(*parts) if gz else b"".join(parts)


def zstd(*records: bytes, dictionary: bytes | None = None) -> bytes:
    """A .warc.zst: a frame a record, the dictionary in a skippable frame at the start."""
    if dictionary is None:
        return b"".join(zstandard.compress(r) for r in records)
    packer = zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))
    lead = b"\x5d\x2a\x4d\x18" + len(dictionary).to_bytes(4, "little") + dictionary
    return lead + b"".join(packer.compress(r) for r in records)


def opened(tmp_path: Path, data: bytes, name: str = "x.warc.gz") -> Snapshot:
    """The archive, read."""
    path = tmp_path / name
    path.write_bytes(data)
    return Snapshot.open(path)


def bodies(snapshot: Snapshot) -> dict[str, bytes]:
    """Return the answers' bodies by URL."""
    return {c.url: snapshot.read(c).body for c in snapshot.captures()}


def revisit(*, uri: bytes = NEXT.encode(), head: bytes = HEAD, fields: bytes, number: int = 5) -> bytes:
    """A revisit record."""
    return record(head + b"\r\n" if head else b"", kind=b"revisit", uri=uri, fields=fields, number=number)
