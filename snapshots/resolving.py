"""Revisits find the record that holds their payload, wherever in a snapshot it lies."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from snapshots.cdxj import parse_line
from snapshots.gathering import Part
from snapshots.pairing import Answer, timestamp_of


class Original(NamedTuple):
    """A record with a payload."""

    url: str
    mime: str
    status: int
    digest: str
    truncated: str
    place: tuple[str, int, int]


class Originals:
    """The captures of a snapshot that are no revisits, by what revisits name them by; looked at when asked for."""

    def __init__(self, files: Iterable[list[Part]]) -> None:
        """`files` are the parts of each file, the files in the order of their names."""
        self._files = list(files)
        self._read: dict[bytes, Original] = {}

    def find(self, answer: Answer) -> Original | None:
        """By record id, else by the URI and date it names, else by digest, the same URL before another.

        So url-agnostic revisits and revisits before their original are found.
        """
        assert answer.revisit is not None
        record_id, uri, date = answer.revisit
        uri = uri.partition("#")[0]
        line = self._by_id.get(record_id) or self._by_moment.get(f"{timestamp_of(date)} {uri}")
        if line is not None:
            named = self._original(line)
            if not answer.digest or named.digest == answer.digest:
                return named
        same = self._by_digest.get(answer.digest, {}) if answer.digest else {}
        if line is not None and not same:
            return named
        # several captures of one instant: the digest decides
        found = same.get(uri) or same.get(answer.url) or next(iter(same.values()), None)
        return None if found is None else self._original(found)

    def _original(self, line: bytes) -> Original:
        found = self._read.get(line)
        if found is None:
            entry: dict[str, Any] = parse_line(line)[2]
            found = self._read[line] = Original(
                entry["url"],
                entry["mime"],
                int(entry["status"]),
                entry["digest"],
                entry.get("truncated", ""),
                (entry["filename"], int(entry["offset"]), int(entry["length"])),
            )
        return found

    @cached_property
    def _all(self) -> list[tuple[str, str, bytes]]:
        """Record id, moment and line of each, in the order of the files and of the records in them."""
        found: list[tuple[str, str, bytes]] = []
        for parts in self._files:
            rows = list(chain(*[zip(p.offsets, p.ids, p.moments, p.lines, strict=True) for p in parts]))
            rows.sort()
            found += [row[1:] for row in rows]
        return found

    @cached_property
    def _by_id(self) -> dict[str, bytes]:
        return {record_id: line for record_id, _, line in self._all}

    @cached_property
    def _by_moment(self) -> dict[str, bytes]:
        """The first of each."""
        return {moment: line for _, moment, line in reversed(self._all)}

    @cached_property
    def _by_digest(self) -> dict[str, dict[str, bytes]]:
        found: dict[str, dict[str, bytes]] = {}
        for _, _, line in self._all:
            one = self._original(line)
            found.setdefault(one.digest, {}).setdefault(one.url, line)
        return found


def resolve(files: list[list[Part]], notes: list[str]) -> None:
    """Makes the lines of all revisits; what has no payload is left out, with a note: it can't be served."""
    revisits = [sorted([(a.offset, a, p) for p in f for a in p.revisits], key=itemgetter(0)) for f in files]
    if not any(revisits):
        return
    originals = Originals(files)
    for _, answer, part in chain(*revisits):
        original = originals.find(answer)
        if original is None:
            notes.append(
                f"{answer.filename}: offset {answer.offset}: the payload of this revisit of {answer.url} is"
                " in none of the files"
            )
            continue
        mime, status = answer.mime, answer.status
        if not answer.head or status == 304:  # no head of its own, or "not modified": the original's stands
            mime, status = original.mime, original.status
        # of ours each says it for itself
        truncated = answer.truncated or ("" if answer.session else original.truncated)
        part.add(answer, mime, status, answer.digest or original.digest, truncated, original.place)
