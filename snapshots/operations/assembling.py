"""Assembly of a new snapshot from another's records, copied byte for byte, and new records.

Each archive file of the source gets a file of the same name, which begins with the source's `warcinfo`
records. Records that are no gzip members are compressed. The index is then built from the records.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stillweb.snapshots._os.atomic_write import is_below, sync_folder
from stillweb.snapshots._os.locking import lock_directory
from stillweb.snapshots._os.random_access import ByteSource, chunks
from stillweb.snapshots.errors import DISK, DamagedInput, UsageError, no_room
from stillweb.snapshots.index.cdxj import Index, is_capture, parse_line
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.remote import local
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import pack
from stillweb.snapshots.warc import members, warc
from stillweb.snapshots.warc.appending import AppendFile
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.warc.scan import Damage, scan
from stillweb.snapshots.writer import OURS, ROTATE, Writer

Range = tuple[int, int]  # offset and length of a record, of stored bytes


class Assembly:
    """The archive files of a new snapshot at `out`: a directory, or a sealed file if it ends in `.wacz`.

    `copy` takes records from the archive files `source`.

    Raises UsageError if `out` exists, or while another process writes it. Without `finish` nothing is left at
    `out`.
    """

    def __init__(self, out: str | os.PathLike[str], source: Mapping[str, ByteSource] | None = None) -> None:
        self.out = local(out)
        if self.out.exists() and not (self.out.is_dir() and not any(self.out.iterdir())):
            raise UsageError(f"{self.out}: exists; name another one")
        self.root = self.out.with_name(f".{self.out.name.removesuffix('.wacz')}.new")
        archive = self.root / "archive"
        archive.mkdir(parents=True, exist_ok=True)
        # lock only archive/, since the writer locks the root. Without the lock, files being written by another process
        # could be taken for those of a killed one, and removed
        self._guard = lock_directory(
            archive, f"another process is writing {self.out}; wait until it has ended"
        )
        for folder in (self.root, archive):
            for one in folder.iterdir():
                if one.is_dir() and one != archive:
                    shutil.rmtree(one)
                elif one != archive:
                    one.unlink()
        self._archives = source or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        os.close(self._guard)
        if error is not None and (text := no_room(error, self.out)) is not None:
            raise text from error

    def copy(self, name: str, records: Iterable[Range]) -> None:
        """Copy records of one of the source's archive files, in their order there."""
        place = self._archives[name]
        out = AppendFile(self._path(name))
        try:
            for offset, length in sorted(set(records)):
                if place.read(offset, 2) == warc.GZIP_MAGIC:
                    for piece in chunks(place, offset, offset + length):
                        out.append(piece)
                else:
                    out.append(_as_member(place, offset, length))
        finally:
            out.end()

    def copy_all(self, name: str, without: Iterable[Range] = ()) -> None:
        """Copy one of the source's archive files, except the records in `without`."""
        place = self._archives[name]
        out = AppendFile(self._path(name, as_is=True))
        try:
            at = 0
            for offset, length in [*sorted(without), (place.size, 0)]:
                for piece in chunks(place, at, offset):
                    out.append(piece)
                at = offset + length
        finally:
            out.end()

    def append(self, records: Iterable[bytes]) -> None:
        """Append packed records to the last file in the writer's numbering, or start the first."""
        files = sorted(p for p in (self.root / "archive").iterdir() if OURS.fullmatch(p.name))
        out = AppendFile(files[-1] if files else self._path("data-00000.warc.gz"))
        try:
            out.append(*records)
        finally:
            out.end()

    def join(self, files: Iterable[Path]) -> None:
        """Append whole archive files, in this order, to files in the writer's numbering."""
        number = 0
        for file in files:
            out = AppendFile(self._path(f"data-{number:05d}.warc.gz"))
            try:
                with file.open("rb") as source:
                    out.append(source)
                number += out.size >= ROTATE
            finally:
                out.end()

    def _path(self, name: str, *, as_is: bool = False) -> Path:
        folder, slash, file = name.rpartition("/")
        if file.startswith(".") or (name.startswith("data-") and not OURS.fullmatch(name)):
            # hidden files are no archives of a folder; data-… names belong to the writer, which numbers them
            name = f"{folder}{slash}from-{file}"
        if not as_is:
            name = name.removesuffix(".gz").removesuffix(".zst") + ".gz"
        path = self.root / "archive" / name
        try:
            if not is_below(name):
                raise ValueError("it leads out of it")
            path.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, RecursionError) as error:  # also too long or deep, or below a file
            if isinstance(error, OSError) and error.errno in DISK:
                raise
            where = self._archives[name].name
            raise DamagedInput(
                f"{where}: no file of a copy's folder archive/ can have its name: {error}"
            ) from error
        return path

    def finish(
        self, rules: Any, profile: Profile | None, check: Callable[[Snapshot], None] | None = None
    ) -> str:
        """Build the index, seal if `out` ends in `.wacz`, and move the result to `out`.

        Returns the new snapshot's id. `check` is called with the new snapshot before the move, and may raise.
        """
        with Writer.open(self.root, profile=profile) as writer:
            writer.rules = rules
        with Snapshot.open(self.root) as snapshot:
            made = snapshot.id
            if check is not None:
                check(snapshot)
        if self.out.suffix == ".wacz":
            container = open_directory(self.root)
            try:  # without files left beside the result if a kill comes after it is there
                pack(container, self.out, last=lambda: shutil.rmtree(self.root))
            finally:
                container.close()
        else:
            if self.out.exists():
                self.out.rmdir()
            os.replace(self.root, self.out)
        sync_folder(self.out.parent)
        return made


def _as_member(place: ByteSource, offset: int, length: int) -> bytes:
    """Return a plain or zstd record as one gzip member. Raises UsageError if it is no WARC record."""
    data = warc.unpack(place.read(offset, length), place, offset)
    if not data.startswith(b"WARC/"):
        raise UsageError(f"{place.name}: has no WARC records to copy; first 'stillweb import' it")
    head = warc.parse_head(data)
    if head is None:
        raise UsageError(f"{place.name}: no WARC record at offset {offset}")
    fields, start = head
    declared = warc.declared_length(fields)
    end = start + declared if declared >= 0 else len(data)
    return members.pack(data[:start], data[start:end])


def ranges(index: Index) -> dict[str, list[Range]]:
    """Return the places of all records that an index knows, by archive file, sorted."""
    found: dict[str, set[Range]] = defaultdict(set)
    for line in index.lines():
        entry = parse_line(line)[2]
        found[entry["filename"]].add((int(entry["offset"]), int(entry["length"])))
        if is_capture(entry) and "req" in entry:
            found[entry["filename"]].add((entry["req"][0], entry["req"][1]))
    return {name: sorted(places) for name, places in found.items()}


def introductions(
    archives: Mapping[str, ByteSource], known: dict[str, list[Range]]
) -> dict[str, list[Range]]:
    """Find the `warcinfo` records of each archive file: they lie in the gaps between indexed records."""
    found: dict[str, list[Range]] = {}
    for name, place in archives.items():
        at = 0
        for offset, length in [*known.get(name, ()), (place.size, 0)]:
            if offset > at:
                for item in scan(place, at, offset):
                    if not isinstance(item, Damage) and item.kind == "warcinfo":
                        found.setdefault(name, []).append((item.offset, item.length))
            at = max(at, offset + length)
    return found
