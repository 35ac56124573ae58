"""Frozen texts as the index lists them, and as their records hold them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.archives.warc import Record
from stillweb.snapshots.contents.package import unpack_options
from stillweb.snapshots.index.cdxj import Index, parse_line, target_of

if TYPE_CHECKING:
    from stillweb.snapshots.texts.text import FrozenText

# what it is sorted by; number of its index; index entry
Listed = tuple[tuple[bytes, str], int, dict[str, Any]]


def conversions(indexes: Sequence[Index]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The last entry of each address, by address, with the number of its index; of several the highest has it."""
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
    """Return the text in a conversion record; those of other tools have no options of ours. Raises ValueError."""
    from stillweb.snapshots.texts.text import FrozenText

    extractor, _, version = record.fields.get("warc-stillweb-extractor", "").partition("/")
    text = record.block.decode(errors="replace")
    options = unpack_options(record.fields.get("warc-stillweb-options", "{}"))
    return FrozenText.from_record(record.uri, text, extractor, version, options)
