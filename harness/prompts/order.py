"""Two orders of pages: the card's shuffle, and one that any language can repeat."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence


def shuffled(pages: Sequence[str], seed: int | str) -> list[str]:
    """Return pages shuffled by `random.Random(seed)` as on the card (the same since CPython 3.2)."""
    order = list(pages)
    random.Random(seed).shuffle(order)
    return order


def hash_order(pages: Sequence[str], seed: int | str) -> list[str]:
    """Return pages sorted by sha256(seed + page), so that two pages' order is independent of others."""
    prefix = hashlib.sha256(str(seed).encode())

    def place(page: str) -> bytes:
        digest = prefix.copy()
        digest.update(page.encode("utf-8", "surrogatepass"))
        return digest.digest()

    return sorted(pages, key=place)
