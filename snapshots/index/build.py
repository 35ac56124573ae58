"""Opening of a container's index: from disk if it is ours and fits the archives, else built from the records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.snapshots._os.processes import rare_collection
from stillweb.snapshots._os.random_access import ByteSource, MemorySource
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.index.cdxj import Index, capture_line, sorted_lines
from stillweb.snapshots.index.gathering import ScanResult
from stillweb.snapshots.index.index_cache import (
    INDEX_VERSION,
    IndexBuild,
    as_written,
    cached_index,
    kept_notes,
)
from stillweb.snapshots.index.indexing import Progress
from stillweb.snapshots.index.parallel import scan_file, scan_files
from stillweb.snapshots.index.resolving import resolve
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.warc.appending import repair
from stillweb.snapshots.warc.container import ARCHIVE, INDEX, PACKAGE, SMALL, STEPS, Container, open_directory

if TYPE_CHECKING:
    from stillweb.snapshots.index.on_disk import OnDisk


def stamp_for(
    files: Mapping[str, ByteSource], index_size: int, index_crc: int, steps: Mapping[str, int] | None
) -> dict[str, Any]:
    """Return the entry of datapackage.json that describes an index of ours."""
    return {
        "version": INDEX_VERSION,
        "bytes": index_size,
        "crc32": index_crc,
        "archives": {name: files[name].size for name in sorted(files)},
        **({"steps": dict(steps)} if steps is not None else {}),
    }


def is_index_current(container: Container) -> bool:
    """Return True if the index on disk is ours, of this version, and for exactly these archives.

    Only versions and sizes are compared; `verify` reads the lines.
    """
    place = container.members.get(INDEX)
    stamp = container.own.get("index")
    if place is None or not isinstance(stamp, dict):
        return False
    return (
        stamp.get("version") == INDEX_VERSION
        and stamp.get("bytes") == place.size
        and stamp.get("archives") == {name: p.size for name, p in container.archives.items()}
    )


def is_of_another_version(container: Container) -> bool:
    """Return True if the index on disk is ours but of another version; such an index is never read."""
    stamp = container.own.get("index")
    return isinstance(stamp, dict) and stamp.get("version") not in (None, INDEX_VERSION)


def open_index(
    container: Container,
    progress: Progress | None = None,
    *,
    checked: bool = False,
    spill: OnDisk | None = None,
) -> tuple[Index, IndexBuild]:
    """Return the index and what else the records say; the latter has notes only where the index had to be built.

    Where a large index would have to be built and `spill` is given, the captures go to `spill`, and the index has only
    the lines of other records.

    A large index is read in blocks, each checked against its CRC-32. With `checked=True` it is checked as a whole, and
    built again if it is damaged.
    """
    ours = is_index_current(container)
    if ours:
        stamp, steps = container.own["index"], container.members.get(STEPS)
        index = as_written(
            container.members[INDEX],
            stamp.get("crc32"),
            container.stamp,
            (steps, stamp.get("steps")),
            checked,
        )
        if index is not None:
            profile = container.own.get("profile")
            known = IndexBuild(
                profile=Profile.from_json(profile) if isinstance(profile, dict) else None,
                settings=container.own.get("settings") or {},
            )
            return index, known
    damaged: list[str] = []
    if container.doubted:
        what = f"{PACKAGE}: {container.doubted}: no rule is applied, and the index is rebuilt"
        damaged = [DamageNote(what)]
    elif ours:
        damaged = [DamageNote(f"{INDEX}: is damaged; rebuilt from the records")]
    if container.size < SMALL:
        built = build(container, progress)
        built.notes = damaged + built.notes
        data, built.lines = join_lines(built.lines), []
        return Index(MemorySource(data)), built
    if spill is not None:
        built = build(container, progress, spill)
        built.notes = damaged + kept_notes(built.notes)
        return Index(MemorySource(join_lines(built.lines))), built
    index, known = cached_index(container, partial(build, container, progress), checked)
    known.notes = damaged + known.notes
    return index, known


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Join index lines; each ends with a line break."""
    return b"\n".join([*lines, b""])


def build(container: Container, progress: Progress | None = None, spill: OnDisk | None = None) -> IndexBuild:
    """Scan all archives; return their sorted lines and what else their records say. See `assemble` for `spill`."""
    with rare_collection():
        return assemble(scans(container, progress, spill=spill).values(), spill)


def mend(
    container: Container, progress: Progress | None = None, spill: OnDisk | None = None
) -> tuple[Container, IndexBuild, list[str]]:
    """Cut off records that a killed process left unfinished in a writable directory, then build its index.

    Return the container (opened again if something was cut off), the built index and a note for each repair. With
    `spill` the captures are there, and only the lines of other records in the index.
    """
    hashes: dict[str, tuple[int, str]] = {}
    parts = scans(container, progress, hashes=hashes, spill=spill)
    folder = Path(container.path) / ARCHIVE
    # archives that can't be read by offset were copied; they can't be cut either
    plain = container.plain
    cut = {
        name for name, of_file in parts.items() if any(p.cut for p in of_file) and (folder / name).is_file()
    } - plain
    repairs = [note for name in sorted(cut) if (note := repair(folder / name))]
    if repairs:
        container.close()
        container = open_directory(Path(container.path))
        for name in sorted(plain):
            container.make_plain(name)
        if spill is not None:
            for name in cut:
                spill.forget(name)
        parts |= scans(container, names=cut, hashes=hashes, spill=spill)
    built = assemble(parts.values(), spill)
    built.hashes = hashes
    return container, built, repairs


def scans(
    container: Container,
    progress: Progress | None = None,
    names: Collection[str] | None = None,
    hashes: dict[str, tuple[int, str]] | None = None,
    spill: OnDisk | None = None,
) -> dict[str, list[ScanResult]]:
    """Scan the archives (or those in `names`); return their parts by name, in name order.

    Large archives are scanned by several processes, which also fill `hashes` with the size and digest of each file.
    """
    archives = {n: container.archives[n] for n in sorted(container.archives if names is None else names)}
    total = sum(place.size for place in archives.values())
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(min(done, total), total)

    parts = {}
    for name, found in [*scan_files(archives, advance, hashes=hashes, spill=spill)]:
        if found is None:
            container.make_plain(name)
            found = scan_file(container.archives[name], name, lambda _: None, spill=spill)
        parts[name] = found
    return parts


def assemble(files: Iterable[list[ScanResult]], spill: OnDisk | None = None) -> IndexBuild:
    """Resolve revisits and return the sorted lines; `files` are in name order.

    With `spill`, which took the captures, these are the lines of other records.
    """
    built = IndexBuild()
    found = list(files)
    for part in (part for parts in found for part in parts):
        built.lines += part.others
        built.notes += part.notes
        built.profile = part.profile or built.profile
        built.settings = part.settings or built.settings
    if spill is not None:
        spill.resolve(built.notes)
    else:
        resolve(found, built.notes)
    for part in (part for parts in found for part in parts):
        built.lines += part.listed
        part.listed, part.lines, part.offsets, part.ids, part.waiting = [], [], [], [], []
    built.lines = sorted_lines(built.lines)
    return built


def finish(
    captures: list[Capture], identities: Mapping[tuple[str, int], str], others: list[bytes]
) -> list[bytes]:
    """Return the sorted lines of `captures` and of `others`."""
    return sorted_lines([*others, *(capture_line(c, identities[c.place]) for c in captures)])
