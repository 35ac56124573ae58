"""Declared digests of records: their algorithm, their encoding, and their verification."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

_NAMES = {"sha1": "sha1", "sha256": "sha256", "sha512": "sha512", "sha384": "sha384", "md5": "md5"}


def algorithm_of(declared: str) -> str:
    """Return hashlib's name for the algorithm of a declared digest, or "" if it is unknown."""
    return _NAMES.get(declared.partition(":")[0].lower().replace("-", ""), "")


def same_digest(declared: str, value: Any) -> bool:
    """Return True if a declared digest (hex, base32 or base64) equals that of the hash object `value`."""
    text = declared.partition(":")[2].strip()
    raw = value.digest()
    plain = text.rstrip("=")
    return (
        text.lower() == raw.hex()
        or plain.upper() == base64.b32encode(raw).decode().rstrip("=")
        or plain
        in (base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("="))
    )


_OF_NOTHING = frozenset(
    f"{name}:{text.rstrip('=').lower()}"
    for name in ("md5", "sha1", "sha256", "sha512")
    for raw in [hashlib.new(name, usedforsecurity=False).digest()]
    for text in (raw.hex(), base64.b32encode(raw).decode())
)


def contradicts(digest: str, other: str) -> bool:
    """Return True if two digests prove that two payloads differ: same algorithm and encoding, other value.

    The digest of the empty string proves nothing as the first argument: some tools write it into every
    revisit, because the revisit's own payload is empty.
    """
    one, two = (text.rstrip("=").lower() for text in (digest, other))
    if one in _OF_NOTHING or one.partition(":")[0] != two.partition(":")[0]:
        return False
    return len(one) == len(two) and one != two


class Proof:
    """A streaming check of a record's block against its WARC-Block-Digest."""

    def __init__(self, declared: str | None) -> None:
        told, _, value = (declared or "").partition(":")
        algorithm = algorithm_of(told) if value.strip() else ""
        self._declared = declared or ""
        self._hash = hashlib.new(algorithm, usedforsecurity=False) if algorithm else None

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the block."""
        if self._hash is not None:
            self._hash.update(piece)

    def holds(self) -> bool:
        """Return True if the digest matches, or if the record declares none."""
        return self._hash is None or same_digest(self._declared, self._hash)
