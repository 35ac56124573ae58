"""Random parts of requests: words, texts, fields, addresses and JSON."""

from __future__ import annotations

import random
import string
from typing import Any


def word(draw: random.Random, low: int = 1, high: int = 8) -> str:
    return "".join(draw.choice(string.ascii_lowercase) for _ in range(draw.randint(low, high)))


def text(draw: random.Random) -> str:
    return "".join(draw.choice("abcXYZ019 é&=+%/?#\"'{}[]<>;:,.~-_日") for _ in range(draw.randint(1, 9)))


def fields(draw: random.Random, count: int = 0) -> list[tuple[str, str]]:
    names = {word(draw, 2) for _ in range(count or draw.randint(2, 5))}
    return [(n, text(draw)) for n in sorted(names)]


def url(draw: random.Random, query: str = "") -> str:
    path = "/".join(word(draw) for _ in range(draw.randint(1, 3)))
    return f"https://{word(draw)}.test/{path}" + (f"?{query}" if query else "")


def value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randint(0, 7 if depth < 3 else 5)
    if kind == 0:
        return draw.randint(-1000, 1000)
    if kind == 1:
        return draw.choice([0.5, -2.25, 1e21, 3.0, 1e-7])
    if kind == 2:
        return draw.choice([True, False, None])
    if kind <= 5:
        return text(draw)
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(draw.randint(1, 3))]
    return {word(draw): value(draw, depth + 1) for _ in range(draw.randint(1, 3))}


def document(draw: random.Random) -> dict[str, Any]:
    return {word(draw, 3): value(draw) for _ in range(draw.randint(2, 4))}
