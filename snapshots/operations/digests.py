"""Digests by which a record is verified."""

from __future__ import annotations

import hashlib

from stillweb.snapshots.index.indexing import missing_digests
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.chunked import dechunk
from stillweb.snapshots.warc.digests import algorithm_of, same_digest
from stillweb.snapshots.warc.scan import Scanned


def declared_digests(kind: str, fields: warc.Fields) -> tuple[tuple[str, str], ...]:
    """Return the digests to compute for a record: its declared ones, or else its payload's."""
    wanted = [
        (part, algorithm)
        for part in ("block", "payload")
        if (algorithm := algorithm_of(fields.get(f"warc-{part}-digest", "")))
    ]
    return (*wanted, *missing_digests(kind, fields))


def same_dechunked(item: Scanned, declared: str) -> bool:
    """Return True if `declared` is the digest of the body without its chunk headers.

    Archives that keep chunk headers in the body declare either digest.
    """
    if len(item.start) < item.size or item.kind not in ("response", "request"):
        return False
    _, headers, start = messages.split(item.start)
    if not messages.is_chunked(headers):
        return False
    body = dechunk(item.start[start:])
    return same_digest(declared, hashlib.new(algorithm_of(declared), body, usedforsecurity=False))
