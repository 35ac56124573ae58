"""Table of captures that change a site's state or sent a value that the site issued, in `indexes/changing.txt`.

Most answers can be remembered for all sessions, but not on a site where something was changed. Without the table, a
million index lines would have to be read to know that. The table has a line `site urlkey` for each urlkey that has
such captures, sorted by its bytes. It is derived from the index and only says where to look there. datapackage.json
holds its size and checksum; if they don't match, the table is not used and the whole index is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from isal import isal_zlib

from stillweb.snapshots._os.places import BytesPlace, Place
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import escape
from stillweb.snapshots.index.cdxj import Index, is_capture, parse_line

TOGETHER = 256  # lines searched at once; most have no mark, nor have their neighbours


def changes(line: bytes) -> bool:
    """Return True if an index line is of a capture that changes a state or sent an issued value."""
    return _marked(line) and is_capture(parse_line(line)[2])


def _marked(line: bytes) -> bool:
    # the search for one byte is the quickest, and most lines have no "$"
    return b'"changes":true' in line or (b"$" in line and (b'"state":"$' in line or b" $" in line))


def table_of(lines: Iterable[bytes]) -> bytes:
    """Return the content of `changing.txt` for the lines of an index."""
    found = set()
    rest = iter(lines)
    while some := list(islice(rest, TOGETHER)):
        if not _marked(b"\n".join(some)):
            continue
        for line in filter(_marked, some):
            key = line.partition(b" ")[0]
            entry = parse_line(line)[2]
            if is_capture(entry):
                found.add(_site(site_of(entry["url"])) + b" " + key + b"\n")
    return b"".join(sorted(found))


def stamp_of(table: bytes) -> dict[str, int]:
    """Return the size and CRC-32 of the table as datapackage.json stores them."""
    return {"bytes": len(table), "crc32": isal_zlib.crc32(table)}


def open_table(place: Place | None, stamp: Any) -> Index | None:
    """Return the table in `place`, or None if it is missing or doesn't match `stamp`."""
    if place is None or not isinstance(stamp, dict):
        return None
    data = place.read(0, place.size)
    return Index(BytesPlace(data)) if stamp_of(data) == stamp else None


def changing_lines(index: Index, table: Index | None, site: str | None) -> Iterator[bytes]:
    """Yield the lines of captures that change something, of all sites if `site` or `table` is None.

    Otherwise they are the lines of `site`, and of other sites that share its urlkeys.
    """
    if site is None or table is None:
        yield from filter(changes, index.lines())
        return
    for line in table.lines(_site(site).decode()):
        key = line.partition(b" ")[2].decode(errors="surrogatepass")
        yield from filter(changes, index.lines(key))


def _site(site: str) -> bytes:
    return escape(site).encode() or b"-"
