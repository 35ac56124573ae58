"""Five digits of a slow hash, by which a secret is told from another one without being kept.

A pseudonym ends in `k`, six hex digits of salt and five of proof (20 bits). Whoever replays a snapshot, with or
without the key that made its pseudonyms, can so say whether a password is the recorded one; another one passes
once in a million times.

What it gives away: who has the snapshot can throw out all but a millionth of his guesses, at some 30 ms and 16 MB
(scrypt, RFC 7914, N = 2^14, r = 8) for each. A password from a short list can be found that way; one that is on
no list can't, since a million times too many still fit. For what was drawn at random the hash is a quick one:
20 bits of 128 help nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from functools import lru_cache

from stillweb.snapshots.secrets.credentials import looks_random

SALT, DIGITS = 6, 5  # hex digits
COST = {"n": 1 << 14, "r": 8, "p": 1}
DRAWN = 20  # characters from which a value that looks random is as good as one

_TAIL = re.compile(r"k([0-9a-f]{6})([0-9a-f]{5})\Z")


def tail(secret: str, key: bytes) -> str:
    """What a pseudonym made with `key` ends in."""
    salt = hmac.digest(key, b"salt of proofs", "sha256").hex()[:SALT]
    return f"k{salt}{proof(secret, salt)}"


def split(pseudonym: str) -> tuple[str, str] | None:
    """The salt and proof of a pseudonym; None for one that has none, as those of older snapshots."""
    found = _TAIL.search(pseudonym)
    return (found[1], found[2]) if found else None


@lru_cache(maxsize=1024)
def proof(secret: str, salt: str) -> str:
    """The digits of a secret; about 30 ms for one that somebody may have chosen."""
    text, mixed = secret.encode("utf-8", "surrogatepass"), b"stillweb proof 1\n" + salt.encode()
    if len(secret) >= DRAWN and looks_random(secret):
        return hmac.digest(mixed, text, "sha256").hex()[:DIGITS]
    return hashlib.scrypt(text, salt=mixed, maxmem=1 << 26, dklen=16, **COST).hex()[:DIGITS]
