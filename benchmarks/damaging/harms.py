"""Harms: what disks, copies and people do to files. Each changes bytes, and says where the changed ones stood before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

PAGE = 4096

Range = tuple[int, int]
Spans = Sequence[Range]  # the records of a file: where each begins and ends


@dataclass(slots=True)
class Harmed:
    """A file's bytes after a harm, and what of them before it is not as it was."""

    data: bytes
    touched: list[Range] = field(default_factory=list)


Harm = Callable[[bytes, Spans, random.Random], Harmed]


def bit(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """One bit is another."""
    at = _at(data, spans, chance)
    return Harmed(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :], [(at, at + 1)])


def head_bit(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """One bit in the first bytes of a record."""
    start, stop = chance.choice(spans) if spans else (0, len(data))
    at = min(start + chance.randrange(64), stop - 1)
    return Harmed(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :], [(at, at + 1)])


def some_bytes(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A few bytes beside each other are others."""
    at = _at(data, spans, chance)
    stop = min(len(data), at + chance.randrange(1, 40))
    return Harmed(data[:at] + chance.randbytes(stop - at) + data[stop:], [(at, stop)])


def cut(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """The end is missing."""
    at = _at(data, spans, chance)
    return Harmed(data[:at], [(at, len(data))])


def removed(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A block is missing, what follows has moved up."""
    at, stop = _block(data, spans, chance)
    return Harmed(data[:at] + data[stop:], [(at, stop)])


def doubled(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A block is there twice."""
    at, stop = _block(data, spans, chance)
    return Harmed(data[:stop] + data[at:stop] + data[stop:], [(stop, stop)])


def swapped(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """Two blocks of one size have changed places."""
    size = chance.randrange(1, max(2, min(len(data) // 2, 3 * PAGE)))
    at = chance.randrange(max(1, len(data) - 2 * size + 1))
    to = chance.randrange(at + size, max(at + size + 1, len(data) - size + 1))
    one, two = data[at : at + size], data[to : to + size]
    made = data[:at] + two + data[at + len(two) : to] + one[: len(data) - to] + data[to + size :]
    return Harmed(made[: len(data)], [(at, at + size), (to, to + size)])


def zeroed(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A page of the disk is all zeros."""
    at = _at(data, spans, chance) // PAGE * PAGE
    stop = min(len(data), at + PAGE)
    return Harmed(data[:at] + bytes(stop - at) + data[stop:], [(at, stop)])


def records_swapped(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """Two records have changed places, of one length if there are such: then all others stand where they stood."""
    if len(spans) < 2:
        return swapped(data, spans, chance)
    pairs = [(a, b) for n, a in enumerate(spans) for b in spans[n + 1 :] if a[1] - a[0] == b[1] - b[0]]
    if pairs and chance.random() < 0.7:
        one, two = chance.choice(pairs)
    else:
        one, two = sorted(chance.sample(list(spans), 2))
    (a, b), (c, d) = one, two
    return Harmed(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:])


def record_lost(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A record is missing."""
    if not spans:
        return removed(data, spans, chance)
    start, stop = chance.choice(spans)
    return Harmed(data[:start] + data[stop:], [(start, stop)])


def record_doubled(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A record is there twice."""
    if not spans:
        return doubled(data, spans, chance)
    start, stop = chance.choice(spans)
    return Harmed(data[:stop] + data[start:stop] + data[stop:])


def padded(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """Bytes that are nothing stand behind the end, or between records."""
    at = chance.choice([stop for _, stop in spans] or [len(data)])
    return Harmed(data[:at] + chance.randbytes(chance.randrange(1, 200)) + data[at:], [(at, at)])


def _at(data: bytes, spans: Spans, chance: random.Random) -> int:
    """Anywhere, or anywhere in any record: most bytes are those of a few large ones."""
    start, stop = chance.choice(spans) if spans and chance.random() < 0.6 else (0, len(data))
    return chance.randrange(start, max(start + 1, min(stop, len(data))))


def _block(data: bytes, spans: Spans, chance: random.Random) -> Range:
    at = _at(data, spans, chance)
    return at, min(len(data), at + chance.randrange(1, 3 * PAGE))


HARMS: dict[str, Harm] = {
    "bit": bit,
    "bit of a head": head_bit,
    "bytes": some_bytes,
    "cut": cut,
    "block removed": removed,
    "block doubled": doubled,
    "blocks swapped": swapped,
    "page of zeros": zeroed,
    "records swapped": records_swapped,
    "record removed": record_lost,
    "record doubled": record_doubled,
    "bytes between": padded,
}
