"""Digests as records declare them: which algorithm, in which encoding, and whether they hold."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

_NAMES = {"sha1": "sha1", "sha256": "sha256", "sha512": "sha512", "sha384": "sha384", "md5": "md5"}


def algorithm_of(declared: str) -> str:
    """The algorithm of a digest by hashlib's name; empty for one that is not known."""
    return _NAMES.get(declared.partition(":")[0].lower().replace("-", ""), "")


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


_OF_NOTHING = frozenset(
    f"{name}:{text.rstrip('=').lower()}"
    for name in ("md5", "sha1", "sha256", "sha512")
    for raw in [hashlib.new(name, usedforsecurity=False).digest()]
    for text in (raw.hex(), base64.b32encode(raw).decode())
)


def contradicts(digest: str, other: str) -> bool:
    """Whether two digests are of different payloads: of one algorithm, in one encoding, and not the same.

    Some tools give every revisit the digest of nothing, which is all that its record holds.
    """
    one, two = (text.rstrip("=").lower() for text in (digest, other))
    if one in _OF_NOTHING or one.partition(":")[0] != two.partition(":")[0]:
        return False
    return len(one) == len(two) and one != two


class Proof:
    """Holds a record's block, as it comes, against the block digest that the record declares, if it declares one."""

    def __init__(self, declared: str | None) -> None:
        told, _, value = (declared or "").partition(":")
        algorithm = algorithm_of(told) if value.strip() else ""
        self._declared = declared or ""
        self._hash = hashlib.new(algorithm, usedforsecurity=False) if algorithm else None

    def feed(self, piece: bytes) -> None:
        """Takes the next piece of the block."""
        if self._hash is not None:
            self._hash.update(piece)

    def holds(self) -> bool:
        """Whether all that came has the declared digest; where none is declared there is nothing to hold."""
        return self._hash is None or same_digest(self._declared, self._hash)
