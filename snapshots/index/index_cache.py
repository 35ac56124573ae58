"""Stored indexes, beside their archives or in the cache, used only if their checksum matches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from isal import isal_zlib

from stillweb.snapshots._os.cache import derived_file
from stillweb.snapshots._os.random_access import ByteSource, FileSource, MemorySource, chunks
from stillweb.snapshots.identity import keys
from stillweb.snapshots.index.blocks import Blocks, open_blocks, steps_of
from stillweb.snapshots.index.cdxj import Index
from stillweb.snapshots.index.indexing import VERSION
from stillweb.snapshots.notes import damage_in, from_plain, to_plain
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.warc.container import Container

INDEX_VERSION = f"{VERSION}.{keys.VERSION}"
# bytes of the largest index whose checksum is tested whenever it is opened, which takes some milliseconds
CHECKED = 1 << 24
MOST = 1000  # notes stored with an index

Hashes = Mapping[str, tuple[int, str]]  # size and "sha256:…" of archive files, by name


@dataclass(slots=True)
class IndexBuild:
    """Result of indexing a container: sorted lines, notes, profile, settings and file hashes."""

    lines: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # warnings about the records
    profile: Profile | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    hashes: Hashes = field(default_factory=dict)


def as_written(
    place: ByteSource, crc: Any, stamp: str, steps: tuple[ByteSource | None, Any], checked: bool
) -> Index | None:
    """Return the index in `place`, or None if it doesn't have the checksum `crc`; `stamp` identifies it.

    A small index is held in memory, so that it stays as it was checked. A large one is read in blocks with a checksum
    each, and checked as a whole only with `checked=True`. `steps` are the block table and its entry in
    datapackage.json.
    """
    if place.size <= CHECKED:
        data = place.read(0, place.size)
        if isal_zlib.crc32(data) != crc:
            return None
        held = MemorySource(data, place.name)
        return Index(held, open_blocks(*steps, held))
    # the block table is damaged, or an old version wrote none: check the whole index, once
    blocks = open_blocks(*steps, place) or _made_blocks(place, crc, f"steps {crc} {place.size} {stamp}")
    if blocks is None or (checked and not blocks.sound()):
        return None
    return Index(place, blocks)


def kept_notes(notes: list[str]) -> list[str]:
    """Return the first 1,000 notes and up to 1,000 later ones about damage."""
    return [*notes[:MOST], *damage_in(notes[MOST:])[:MOST]]


class _WrongChecksum(Exception):
    """Error for an index whose checksum is wrong."""


def _made_blocks(place: ByteSource, crc: Any, stamp: str) -> Blocks | None:
    """Return blocks by a table in the cache, made if missing; None if the index or the table is damaged."""

    def write(out: BinaryIO) -> None:
        found = 0
        for piece in chunks(place):
            found = isal_zlib.crc32(piece, found)
        if found != crc:
            raise _WrongChecksum
        out.write(steps_of(place))

    try:
        path = derived_file("steps.txt", stamp, write)
    except _WrongChecksum:
        return None
    steps = FileSource(path)
    blocks = open_blocks(steps, None, place)
    steps.close()
    if blocks is None:  # its file in the cache is damaged
        path.unlink(missing_ok=True)
    return blocks


def cached_index(
    container: Container, build: Callable[[], IndexBuild], checked: bool
) -> tuple[Index, IndexBuild]:
    """Return the index of a container that has none of ours, from the cache; build it if missing or damaged."""

    # the first line of a cached index is a JSON object with its checksum, notes, profile and settings
    def write(out: BinaryIO) -> None:
        built = build()
        crc = 0
        for line in built.lines:
            crc = isal_zlib.crc32(line + b"\n", crc)
        head = {
            "crc32": crc,
            "notes": to_plain(kept_notes(built.notes)),
            "plain": sorted(container.plain),
            "profile": built.profile.to_json() if built.profile else None,
            "settings": built.settings,
        }
        out.write(json.dumps(head).encode() + b"\n")
        for line in built.lines:
            out.write(line + b"\n")

    while True:
        path = derived_file("index.cdxj", f"index 4 {INDEX_VERSION} {container.stamp}", write)
        place = FileSource(path)
        first = place.read(0, 1 << 22).partition(b"\n")[0]
        place.close()
        try:
            head = json.loads(first)
            plain, crc, notes = list(head["plain"]), int(head["crc32"]), from_plain(head["notes"])
            profile, settings = head["profile"], head["settings"]
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
            continue
        lines = FileSource(path, base=len(first) + 1)
        index = as_written(lines, crc, f"cached {container.stamp}", (None, None), checked)
        if index is not None:
            break
        lines.close()
        path.unlink(missing_ok=True)
    for name in plain:
        container.make_plain(name)
    known = IndexBuild([], notes, Profile.from_json(profile) if profile else None, settings)
    return index, known
