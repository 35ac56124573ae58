"""Indexes of others: CDXJ, plain or as ZipNum (gzip members one after the other)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from stillweb.snapshots.archives import warc
from stillweb.snapshots.machine.places import Place


def plain_lines(place: Place) -> Iterator[bytes]:
    """The lines of an index that may be compressed (ZipNum: gzip members one after the other)."""
    data = place.read(0, place.size)
    if data[:2] == warc.GZIP_MAGIC:
        parts = []
        while data[:2] == warc.GZIP_MAGIC:
            unpacker = zlib.decompressobj(31)
            try:
                parts.append(unpacker.decompress(data))
            except zlib.error:
                break
            data = unpacker.unused_data
        data = b"".join(parts)
    yield from data.split(b"\n")
