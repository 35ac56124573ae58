"""The index of a container: taken from disk where it is ours and fits its archives, else built from the records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.archives.appending import repair
from stillweb.snapshots.archives.container import (
    ARCHIVE,
    CHANGING,
    INDEX,
    PACKAGE,
    SMALL,
    STEPS,
    Container,
    open_directory,
)
from stillweb.snapshots.archives.reading import Archives
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.index.cdxj import Index, sorted_lines
from stillweb.snapshots.index.changing import open_table
from stillweb.snapshots.index.gathering import Part, Site
from stillweb.snapshots.index.indexing import Progress
from stillweb.snapshots.index.kept import INDEX_VERSION, Built, as_written, cached_index, kept_notes
from stillweb.snapshots.index.parallel import scan_file, scan_files
from stillweb.snapshots.index.resolving import resolve
from stillweb.snapshots.index.stating import final_lines, stated_lines
from stillweb.snapshots.machine.garbage import seldom_collected
from stillweb.snapshots.machine.places import BytesPlace, Place
from stillweb.snapshots.notes import Damaged
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from stillweb.snapshots.index.on_disk import OnDisk


def stamp_for(
    files: Mapping[str, Place],
    index_size: int,
    index_crc: int,
    changing: Mapping[str, int],
    steps: Mapping[str, int] | None,
) -> dict[str, Any]:
    """What an index of ours says about itself in datapackage.json."""
    return {
        "version": INDEX_VERSION,
        "bytes": index_size,
        "crc32": index_crc,
        "archives": {name: files[name].size for name in sorted(files)},
        "changing": dict(changing),
        **({"steps": dict(steps)} if steps is not None else {}),
    }


def fits(container: Container) -> bool:
    """Whether the index on disk is one of ours for just these archives (`verify` looks into it)."""
    place = container.members.get(INDEX)
    stamp = container.own.get("index")
    if place is None or not isinstance(stamp, dict):
        return False
    return (
        stamp.get("version") == INDEX_VERSION
        and stamp.get("bytes") == place.size
        and stamp.get("archives") == {name: p.size for name, p in container.archives.items()}
    )


def by_another_version(container: Container) -> bool:
    """Whether the index on disk is ours, but its lines are of another version; such a one is never read."""
    stamp = container.own.get("index")
    return isinstance(stamp, dict) and stamp.get("version") not in (None, INDEX_VERSION)


def open_index(
    container: Container,
    progress: Progress | None = None,
    *,
    checked: bool = False,
    aside: OnDisk | None = None,
) -> tuple[Index, Built]:
    """The index, and what else is known; notes only when it had to be built.

    Where a large one would have to be built, and `aside` is there, that gets the captures, and the index has only the
    records that are none.

    A large one is read in blocks, each held against its check sum; one that is to be `checked` is looked at whole, so
    that it is made anew where it is damaged.
    """
    ours = fits(container)
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
            known = Built(
                profile=Profile.from_json(profile) if isinstance(profile, dict) else None,
                settings=container.own.get("settings") or {},
                changing=lambda: open_table(container.members.get(CHANGING), stamp.get("changing")),
            )
            return index, known
    damaged: list[str] = []
    if container.doubted:
        what = f"{PACKAGE}: {container.doubted}: no rule is in force, and the index is made anew"
        damaged = [Damaged(what)]
    elif ours:
        damaged = [Damaged(f"{INDEX}: is damaged; made anew from the records")]
    if container.size < SMALL:
        built = build(container, progress)
        built.notes = damaged + built.notes
        data, built.lines = join_lines(built.lines), []
        return Index(BytesPlace(data)), built
    if aside is not None:
        built = put_aside(container, aside, progress)
        built.notes = damaged + kept_notes(built.notes)
        return Index(BytesPlace(join_lines(built.lines))), built
    index, known = cached_index(container, partial(build, container, progress), checked)
    known.notes = damaged + known.notes
    return index, known


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Lines with their line breaks."""
    return b"\n".join([*lines, b""])


def build(container: Container, progress: Progress | None = None) -> Built:
    """The sorted lines of all archives, and what else their records say."""
    with seldom_collected():
        return assemble(scans(container, progress).values(), Archives(container.archives))


def put_aside(container: Container, aside: OnDisk, progress: Progress | None = None) -> Built:
    """What records say beside captures, whose lines are put aside, without their states and in no order."""
    with seldom_collected():
        built = Built()
        for part in (part for parts in scans(container, progress, aside=aside).values() for part in parts):
            learn(built, part)
        aside.resolve(built.notes)
        built.lines = sorted_lines(built.lines)
        return built


def mend(container: Container, progress: Progress | None = None) -> tuple[Container, Built, list[str]]:
    """As `build`, of a directory that may be written: records that a kill left unfinished are cut off first.

    The container is another one where something was; the texts say what.
    """
    hashes: dict[str, tuple[int, str]] = {}
    parts = scans(container, progress, hashes=hashes)
    folder = Path(container.path) / ARCHIVE
    # a plain copy was made of what can't be read by offset, nor be cut
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
        parts |= scans(container, names=cut, hashes=hashes)
    built = assemble(parts.values(), Archives(container.archives))
    built.hashes = hashes
    return container, built, repairs


def scans(
    container: Container,
    progress: Progress | None = None,
    names: Collection[str] | None = None,
    hashes: dict[str, tuple[int, str]] | None = None,
    aside: OnDisk | None = None,
) -> dict[str, list[Part]]:
    """What a scan finds of each archive (or of some), in the order of their names; large ones in several processes.

    Where it takes several, `hashes` is given those of whole files, too.
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
    for name, found in [*scan_files(archives, advance, hashes=hashes, aside=aside)]:
        if found is None:
            container.make_plain(name)
            found = scan_file(container.archives[name], name, lambda _: None, aside=aside)
        parts[name] = found
    return parts


def assemble(files: Iterable[list[Part]], archives: Archives) -> Built:
    """Sorted lines of what scans found, the files in the order of their names: revisits resolved, states assigned."""
    built = Built()
    found = list(files)
    for part in (part for parts in found for part in parts):
        learn(built, part)
    resolve(found, built.notes)
    sites: dict[str, Site] = {}
    for part in (part for parts in found for part in parts):
        for name, site in part.sites.items():
            if name in sites:
                sites[name].merge(site)
            else:
                sites[name] = site
        part.sites, part.lines, part.offsets, part.ids, part.moments = {}, [], [], [], []
        part.waiting = []
    built.lines = sorted_lines([*built.lines, *final_lines(sites.values(), archives)])
    return built


def learn(built: Built, part: Part) -> None:
    """Takes over what a part says beside its captures."""
    built.lines += part.others
    built.notes += part.notes
    built.profile = part.profile or built.profile
    built.settings = part.settings or built.settings


def finish(
    captures: list[Capture],
    identities: Mapping[tuple[str, int], str],
    others: list[bytes],
    archives: Archives,
) -> list[bytes]:
    """The sorted lines of captures whose states are to be assigned, and of other records."""
    return sorted_lines([*others, *stated_lines(captures, identities, archives)])
