"""Resolution of revisits: the search in all files of a snapshot for the record that holds the payload."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.index.cdxj import json_text, parse_line
from stillweb.snapshots.index.gathering import PendingRevisit, ScanResult
from stillweb.snapshots.index.pairing import ResponseRecord
from stillweb.snapshots.warc.warc import contradicts

REMEMBERED = 1 << 16  # places of payloads in the cache
NOWHERE = "is in none of the files"  # end of the note on a revisit whose payload is missing


class Original(NamedTuple):
    """A capture that is not a revisit."""

    offset: int
    record_id: str
    line: bytes
    filename: str

    @property
    def digest(self) -> str:
        return digest_in(self.line)

    @property
    def place(self) -> tuple[str, int, int]:
        """Filename, offset and length of the record."""
        found = _PLAIN.search(self.line)
        length = found[2] if found else parse_line(self.line)[2]["length"]
        return self.filename, self.offset, int(length)


# The fields of an `Original` as a plain tuple, which is faster to make in large numbers.
Row = tuple[int, str, bytes, str]
RECORD_ID: Final = 1
LINE: Final = 2
_BEGIN = re.compile(rb'[^ ]* ([0-9]+) \{"url":("(?:[^"\\]|\\.)*")')
# quotes in values are escaped, so the pattern can't match within the URL before it
_PLAIN = re.compile(rb',"digest":"([^"\\]*)","length":"([0-9]+)"')


def digest_in(line: bytes) -> str:
    """Return the payload digest in a capture's index line."""
    found = _PLAIN.search(line)
    digest: str = found[1].decode(errors="surrogatepass") if found else parse_line(line)[2]["digest"]
    return digest


def moment_in(line: bytes) -> str:
    """Return timestamp and URL of a capture's index line."""
    found = _BEGIN.match(line)
    assert found is not None, line
    url = found[2].decode(errors="surrogatepass")
    return f"{found[1].decode()} {json.loads(url) if chr(92) in url else url[1:-1]}"


class Originals:
    """Captures that are no revisits, by record id, moment and digest; each map is built on first use."""

    def __init__(self, files: Iterable[list[ScanResult]], wanted: Set[str] = frozenset()) -> None:
        """Take the parts of each file, the files in the order of their names.

        The maps have only the `wanted` record ids, moments and digests: the captures are many more than the revisits.
        """
        self._files = list(files)
        self._wanted = wanted

    def find(self, record_id: str, moment: str, digest: str, url: str) -> Original | None:
        """Find the original of a revisit by record id, else by date and URI, else by digest; None if there is none.

        By digest, an original of the named URI or of `url`, the revisit's own, comes before others. So url-agnostic
        revisits and revisits before their original are resolved.
        """
        row = (self.by_id(record_id) if record_id else None) or self.by_moment(moment)
        if row is not None and (not digest or digest_in(row[LINE]) == digest):
            return Original(*row)
        # several captures may share a moment: the digest decides
        same = self.by_digest(digest, (moment.partition(" ")[2], url)) if digest else None
        row = same or row
        if row is None or contradicts(digest, digest_in(row[LINE])):
            return None
        return Original(*row)

    def by_id(self, record_id: str) -> Row | None:
        """Return the last original with a record id."""
        return self._by_id.get(record_id)

    def by_moment(self, moment: str) -> Row | None:
        """Return the first original with a moment: timestamp and URL."""
        return self._by_moment.get(moment)

    def by_digest(self, digest: str, urls: tuple[str, str]) -> Row | None:
        """Return the first original with a digest, of the first of `urls` that has one, else of any URL."""
        same = self._by_digest.get(digest)
        if same is None:
            return None
        return same.get(urls[0]) or same.get(urls[1]) or next(iter(same.values()))

    def _rows(self) -> Iterator[Row]:
        """Yield all originals, in the order of the files and of the records in them."""
        for parts in self._files:
            rows: list[Row] = []
            for part in parts:
                rows += zip(
                    part.offsets, part.ids, part.lines, repeat(part.name, len(part.lines)), strict=True
                )
            rows.sort(key=itemgetter(0))
            yield from rows

    @cached_property
    def _by_id(self) -> dict[str, Row]:
        return {row[RECORD_ID]: row for row in self._rows() if row[RECORD_ID] in self._wanted}

    @cached_property
    def _by_moment(self) -> dict[str, Row]:
        """First original of each moment."""
        found: dict[str, Row] = {}
        for row in self._rows():
            if (moment := moment_in(row[LINE])) in self._wanted:
                found.setdefault(moment, row)
        return found

    @cached_property
    def _by_digest(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        for row in self._rows():
            if (digest := digest_in(row[LINE])) in self._wanted:
                found.setdefault(digest, {}).setdefault(moment_in(row[LINE]).partition(" ")[2], row)
        return found


def _of_file(parts: list[ScanResult]) -> Iterator[tuple[int, ResponseRecord | PendingRevisit, ScanResult]]:
    for part in parts:
        yield from ((answer.offset, answer, part) for answer in part.revisits)
        yield from ((waiting.offset, waiting, part) for waiting in part.waiting)


def resolve(files: list[list[ScanResult]], notes: list[str]) -> None:
    """Add the lines of all revisits to their parts; leave out revisits without a payload, with a note."""
    revisits = [sorted(_of_file(parts), key=itemgetter(0)) for parts in files]
    if not any(revisits):
        return
    wanted: set[str] = set()
    for _, revisit, _ in chain(*revisits):
        wanted |= {*_named(revisit), revisit.digest}
    resolve_each(chain(*revisits), Originals(files, wanted), notes)


def _named(revisit: ResponseRecord | PendingRevisit) -> tuple[str, str]:
    """Return record id ("" if it names none) and moment of the original that a revisit names."""
    if isinstance(revisit, PendingRevisit):
        return "", revisit.moment
    assert revisit.revisit is not None
    record_id, uri, date = revisit.revisit
    return record_id, f"{timestamp_of(date)} {uri.partition('#')[0]}"


def resolve_each(
    revisits: Iterable[tuple[int, ResponseRecord | PendingRevisit, ScanResult]],
    originals: Originals,
    notes: list[str],
) -> None:
    """Add the lines of `revisits`, each given with its offset and the part that gets its line."""

    @lru_cache(maxsize=REMEMBERED)
    def place_of(moment: str, digest: str, url: str) -> bytes | None:
        """Return the place of a payload as JSON. Cached: many revisits are of the same pictures."""
        original = originals.find("", moment, digest, url)
        if original is None:
            return None
        filename, at, length = original.place
        return f"[{json_text(filename)},{at},{length}]".encode(errors="surrogatepass")

    for offset, revisit, part in revisits:
        if isinstance(revisit, PendingRevisit):
            place = place_of(revisit.moment, revisit.digest, revisit.url)
            if place is not None:
                part.listed.append(revisit.line + place + revisit.rest)
                continue
            name = part.name
        else:
            original = originals.find(*_named(revisit), revisit.digest, revisit.url)
            if original is not None:
                _add(part, revisit, original)
                continue
            name = revisit.filename
        notes.append(f"{name}: offset {offset}: the payload of this revisit of {revisit.url} {NOWHERE}")


def _add(part: ScanResult, answer: ResponseRecord, original: Original) -> None:
    entry: dict[str, Any] = parse_line(original.line)[2]
    mime, status = answer.mime, answer.status
    if not answer.head or status == 304:  # no head of its own, or "not modified": the original's head counts
        mime, status = entry["mime"], int(entry["status"])
        answer.personal |= entry.get("personal", False)
    # others say by "length" that the payload is not repeated (WARC 1.1, 6.7.2); our own revisits have their own WARC-Truncated
    truncated = answer.truncated if answer.session else entry.get("truncated", "")
    part.add(answer, mime, status, answer.digest or original.digest, truncated, original.place)
