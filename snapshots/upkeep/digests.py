"""Digests as records declare them: which algorithm, in which encoding, and whether they hold."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from snapshots.archives import messages, warc
from snapshots.archives.scan import Scanned
from snapshots.index.indexing import missing_digests

_NAMES = {"sha1": "sha1", "sha256": "sha256", "sha512": "sha512", "sha384": "sha384", "md5": "md5"}


def algorithm_of(declared: str) -> str:
    """The algorithm of a digest by hashlib's name; empty for one that is not known."""
    return _NAMES.get(declared.partition(":")[0].lower().replace("-", ""), "")


def declared_digests(kind: str, fields: warc.Fields) -> tuple[tuple[str, str], ...]:
    """The digests to compute for a record: those it declares, and its payload's if it declares none."""
    wanted = [
        (part, algorithm)
        for part in ("block", "payload")
        if (algorithm := algorithm_of(fields.get(f"warc-{part}-digest", "")))
    ]
    return (*wanted, *missing_digests(kind, fields))


def same_digest(declared: str, value: Any) -> bool:
    """Whether a declared digest, in hex, base32 or base64, is that of a hash object."""
    text = declared.partition(":")[2].strip()
    raw = value.digest()
    plain = text.rstrip("=")
    return (
        text.lower() == raw.hex()
        or plain.upper() == base64.b32encode(raw).decode().rstrip("=")
        or plain
        in (base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("="))
    )


def same_dechunked(item: Scanned, declared: str) -> bool:
    """Archives with chunk headers left in give the digest of the body with or without them."""
    if len(item.start) < item.size or item.kind not in ("response", "request"):
        return False
    _, headers, start = messages.split(item.start)
    if not messages.is_chunked(headers):
        return False
    body = messages.dechunk(item.start[start:])
    return same_digest(declared, hashlib.new(algorithm_of(declared), body, usedforsecurity=False))
