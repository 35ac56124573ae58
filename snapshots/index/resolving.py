"""Revisits find the record that holds their payload, wherever in a snapshot it lies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

from stillweb.snapshots.archives.digests import contradicts
from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.index.cdxj import json_text, parse_line
from stillweb.snapshots.index.gathering import Part, Waiting
from stillweb.snapshots.index.pairing import Answer

REMEMBERED = 1 << 16  # payloads whose place is kept
NOWHERE = "is in none of the files"  # a note on a revisit ends with it, where its payload is lacking


class Original(NamedTuple):
    """A capture that is no revisit."""

    offset: int
    record_id: str
    moment: str  # timestamp and URL
    line: bytes
    filename: str

    @property
    def digest(self) -> str:
        """Of the payload."""
        return digest_in(self.line)

    @property
    def place(self) -> tuple[str, int, int]:
        """Of its record."""
        found = _PLAIN.search(self.line)
        length = found[2] if found else parse_line(self.line)[2]["length"]
        return self.filename, self.offset, int(length)


# The same without names, which take time where there are many.
Row = tuple[int, str, str, bytes, str]
RECORD_ID: Final = 1
MOMENT: Final = 2
LINE: Final = 3
_PLAIN = re.compile(
    rb',"digest":"([^"\\]*)","length":"([0-9]+)"'
)  # no quote stands unescaped in a value before it


def digest_in(line: bytes) -> str:
    """The digest of the payload in the line of a capture."""
    found = _PLAIN.search(line)
    digest: str = found[1].decode(errors="surrogatepass") if found else parse_line(line)[2]["digest"]
    return digest


class Originals:
    """The captures of a snapshot that are no revisits, by what revisits name them by; looked at when asked for."""

    def __init__(self, files: Iterable[list[Part]]) -> None:
        """`files` are the parts of each file, the files in the order of their names."""
        self._files = list(files)

    def find(self, record_id: str, moment: str, digest: str, url: str) -> Original | None:
        """By record id, else by the URI and date it names, else by digest, the same URL before another.

        So url-agnostic revisits and revisits before their original are found. `url` is the revisit's own.
        """
        row = (self.by_id(record_id) if record_id else None) or self.by_moment(moment)
        if row is not None and (not digest or digest_in(row[LINE]) == digest):
            return Original(*row)
        # several captures of one instant: the digest decides
        same = self.by_digest(digest, (moment.partition(" ")[2], url)) if digest else None
        row = same or row
        if row is None or contradicts(digest, digest_in(row[LINE])):
            return None
        return Original(*row)

    def by_id(self, record_id: str) -> Row | None:
        """The last of a record id."""
        return self._by_id.get(record_id)

    def by_moment(self, moment: str) -> Row | None:
        """The first of a timestamp and URL."""
        return self._by_moment.get(moment)

    def by_digest(self, digest: str, urls: tuple[str, str]) -> Row | None:
        """The first of a digest and the first of the URLs that has one, else of any."""
        same = self._by_digest.get(digest)
        if same is None:
            return None
        return same.get(urls[0]) or same.get(urls[1]) or next(iter(same.values()))

    @cached_property
    def _all(self) -> list[Row]:
        """In the order of the files and of the records in them."""
        found: list[Row] = []
        for parts in self._files:
            rows: list[Row] = []
            for part in parts:
                names = repeat(part.name, len(part.lines))
                rows += zip(part.offsets, part.ids, part.moments, part.lines, names, strict=True)
            rows.sort(key=itemgetter(0))
            found += rows
        return found

    @cached_property
    def _by_id(self) -> dict[str, Row]:
        return {row[RECORD_ID]: row for row in self._all}

    @cached_property
    def _by_moment(self) -> dict[str, Row]:
        """The first of each."""
        return {row[MOMENT]: row for row in reversed(self._all)}

    @cached_property
    def _by_digest(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        for row in self._all:
            found.setdefault(digest_in(row[LINE]), {}).setdefault(row[MOMENT].partition(" ")[2], row)
        return found


def _of_file(parts: list[Part]) -> Iterator[tuple[int, Answer | Waiting, Part]]:
    for part in parts:
        yield from ((answer.offset, answer, part) for answer in part.revisits)
        yield from ((waiting.offset, waiting, part) for waiting in part.waiting)


def resolve(files: list[list[Part]], notes: list[str]) -> None:
    """Makes the lines of all revisits; what has no payload is left out, with a note: it can't be served."""
    revisits = [sorted(_of_file(parts), key=itemgetter(0)) for parts in files]
    if not any(revisits):
        return
    resolve_each(chain(*revisits), Originals(files), notes)


def resolve_each(
    revisits: Iterable[tuple[int, Answer | Waiting, Part]], originals: Originals, notes: list[str]
) -> None:
    """Makes the lines of revisits, each with its offset and the part that is to have its line."""

    @lru_cache(maxsize=REMEMBERED)
    def place_of(moment: str, digest: str, url: str) -> bytes | None:
        """In an index line; the same pictures are come back to again and again."""
        original = originals.find("", moment, digest, url)
        if original is None:
            return None
        filename, at, length = original.place
        return f"[{json_text(filename)},{at},{length}]".encode(errors="surrogatepass")

    for offset, revisit, part in revisits:
        if isinstance(revisit, Waiting):
            place = place_of(revisit.moment, revisit.digest, revisit.url)
            if place is not None:
                line = revisit.line + place + revisit.rest
                part.site(revisit.site).take(revisit.key, revisit.told, revisit.says, line, revisit.asked)
                continue
            name = part.name
        else:
            assert revisit.revisit is not None
            record_id, uri, date = revisit.revisit
            moment = f"{timestamp_of(date)} {uri.partition('#')[0]}"
            original = originals.find(record_id, moment, revisit.digest, revisit.url)
            if original is not None:
                _add(part, revisit, original)
                continue
            name = revisit.filename
        notes.append(f"{name}: offset {offset}: the payload of this revisit of {revisit.url} {NOWHERE}")


def _add(part: Part, answer: Answer, original: Original) -> None:
    entry: dict[str, Any] = parse_line(original.line)[2]
    mime, status = answer.mime, answer.status
    if not answer.head or status == 304:  # no head of its own, or "not modified": the original's stands
        mime, status = entry["mime"], int(entry["status"])
    # of ours each says it for itself
    truncated = answer.truncated or ("" if answer.session else entry.get("truncated", ""))
    part.add(answer, mime, status, answer.digest or original.digest, truncated, original.place)
