"""Frozen texts: their entries in the index, and their records."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.contents.package import unpack_options
from stillweb.snapshots.index.cdxj import Index, parse_line, target_of
from stillweb.snapshots.warc.warc import Record

if TYPE_CHECKING:
    from stillweb.snapshots.text.text import FrozenText

# sort key; number of the index; index entry
Listed = tuple[tuple[bytes, str], int, dict[str, Any]]


def conversions(indexes: Sequence[Index]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the last entry of each address, in order of addresses, with the number of its index.

    If several indexes have the address, the one with the highest number wins.
    """
    found = heapq.merge(*(_last(number, index) for number, index in enumerate(indexes)), key=_place)
    for _, same in groupby(found, key=_place):
        *_, (_, number, entry) = same
        yield number, entry


def _last(number: int, index: Index) -> Iterator[Listed]:
    lines = index.lines("urn:conversion:", prefix=True)
    for key, same in groupby(lines, key=lambda line: line.split(b" ", 1)[0]):
        last: dict[str, dict[str, Any]] = {}
        for line in same:
            entry = parse_line(line)[2]
            last[target_of(entry)] = entry
        for url in sorted(last):
            yield (key, url), number, last[url]


def _place(listed: Listed) -> tuple[bytes, str]:
    return listed[0]


def frozen_text(record: Record) -> FrozenText:
    """Return the text in a conversion record. Records of other tools have no options. Raises ValueError."""
    from stillweb.snapshots.text.text import FrozenText

    extractor, _, version = record.fields.get("warc-stillweb-extractor", "").partition("/")
    text = record.block.decode(errors="replace")
    options = unpack_options(record.fields.get("warc-stillweb-options", "{}"))
    return FrozenText.from_record(record.uri, text, extractor, version, options)
