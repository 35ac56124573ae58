"""An index that was kept, beside its archives or in the cache: read only as it was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from isal import isal_zlib

from stillweb.snapshots.archives.container import Container
from stillweb.snapshots.identity import keys
from stillweb.snapshots.index.blocks import Blocks, open_blocks, steps_of
from stillweb.snapshots.index.cdxj import Index
from stillweb.snapshots.index.changing import open_table, stamp_of, table_of
from stillweb.snapshots.index.indexing import VERSION
from stillweb.snapshots.machine.cache import derived
from stillweb.snapshots.machine.places import BytesPlace, FilePlace, Place, chunks
from stillweb.snapshots.notes import damage_in, from_plain, to_plain
from stillweb.snapshots.profile import Profile

INDEX_VERSION = f"{VERSION}.{keys.VERSION}"
# bytes of an index up to which its checksum is looked at when it is opened: some milliseconds
CHECKED = 1 << 24
MOST = 1000  # notes that are kept

Hashes = Mapping[str, tuple[int, str]]  # of archive files: at what size, and "sha256:…"


@dataclass(slots=True)
class Built:
    """What the records of an archive say, besides their lines."""

    lines: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was wrong
    profile: Profile | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    # opens the table of `stillweb.snapshots.index.changing`, if there is one
    changing: Callable[[], Index | None] = lambda: None
    hashes: Hashes = field(default_factory=dict)


def as_written(
    place: Place, crc: Any, stamp: str, steps: tuple[Place | None, Any], checked: bool
) -> Index | None:
    """The index in a place, if it has the checksum that it was written with; `stamp` identifies it.

    A small one is in memory from then on, so that it stays as it was looked at. A large one is read in blocks with a
    checksum each, and looked at whole only if it is to be `checked`. `steps` are the file of blocks, and what
    datapackage.json says of it.
    """
    if place.size <= CHECKED:
        data = place.read(0, place.size)
        if isal_zlib.crc32(data) != crc:
            return None
        held = BytesPlace(data, place.name)
        return Index(held, open_blocks(*steps, held))
    # damaged, or by a version that knew of none: the index is looked at whole, once
    blocks = open_blocks(*steps, place) or _made_blocks(place, crc, f"steps {crc} {place.size} {stamp}")
    if blocks is None or (checked and not blocks.sound()):
        return None
    return Index(place, blocks)


def kept_notes(notes: list[str]) -> list[str]:
    """Those that are kept: none of damage is lost to the many that may stand before it."""
    return [*notes[:MOST], *damage_in(notes[MOST:])[:MOST]]


class _Another(Exception):
    """An index that is not as it was written."""


def _made_blocks(place: Place, crc: Any, stamp: str) -> Blocks | None:
    """Blocks that are kept in the cache; None where the index is not as it was written."""

    def write(out: BinaryIO) -> None:
        found = 0
        for piece in chunks(place):
            found = isal_zlib.crc32(piece, found)
        if found != crc:
            raise _Another
        out.write(steps_of(place))

    try:
        path = derived("steps.txt", stamp, write)
    except _Another:
        return None
    steps = FilePlace(path)
    blocks = open_blocks(steps, None, place)
    steps.close()
    if blocks is None:  # its file in the cache is damaged
        path.unlink(missing_ok=True)
    return blocks


def cached_index(container: Container, build: Callable[[], Built], checked: bool) -> tuple[Index, Built]:
    """The index of an archive that has none of ours, from the cache; built if it is not there or damaged."""

    # the first line of a cached index holds what else is to be known
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
        path = derived("index.cdxj", f"index 4 {INDEX_VERSION} {container.stamp}", write)
        place = FilePlace(path)
        first = place.read(0, 1 << 22).partition(b"\n")[0]
        place.close()
        try:
            head = json.loads(first)
            plain, crc, notes = list(head["plain"]), int(head["crc32"]), from_plain(head["notes"])
            profile, settings = head["profile"], head["settings"]
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
            continue
        lines = FilePlace(path, base=len(first) + 1)
        index = as_written(lines, crc, f"cached {container.stamp}", (None, None), checked)
        if index is not None:
            break
        lines.close()
        path.unlink(missing_ok=True)
    for name in plain:
        container.make_plain(name)
    known = Built([], notes, Profile.from_json(profile) if profile else None, settings)
    known.changing = lambda: _cached_table(index, f"changing 2 {INDEX_VERSION} {container.stamp}")
    return index, known


def _cached_table(index: Index, stamp: str) -> Index | None:
    """See `stillweb.snapshots.index.changing`; in its file, what it is follows the first line break."""

    def write(out: BinaryIO) -> None:
        table = table_of(index.lines())
        out.write(json.dumps(stamp_of(table)).encode() + b"\n" + table)

    place = FilePlace(derived("changing.txt", stamp, write))
    first, _, table = place.read(0, place.size).partition(b"\n")
    place.close()
    try:
        told = json.loads(first)
    except ValueError:
        return None
    return open_table(BytesPlace(table), told)
