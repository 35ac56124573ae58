"""A container: archive files, an index that may be distrusted, and other members by name.

This module opens directories. Other forms (WACZ, bare WARC, URL) are opened by
`stillweb.snapshots.opening`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stillweb.snapshots._os.cache import derived_file
from stillweb.snapshots._os.random_access import ByteSource, FileSource, chunks
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.shapes import convert, must_be_unicode
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.scan import PIECE

ARCHIVE = "archive/"
INDEX = "indexes/index.cdxj"
STEPS = "indexes/steps.txt"
PAGES = "pages/pages.jsonl"
PACKAGE = "datapackage.json"
DIGEST = "datapackage-digest.json"
SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".arc", ".arc.gz")
LARGEST_MEMBER = 1 << 23  # bytes of a JSON file: its smallest values take twenty times as much in memory
SMALL = 1 << 22  # archives with fewer bytes are indexed at each open, not cached


class StoredRules(msgspec.Struct):
    rules: list[str] = []
    refused: list[Any] = []


class IndexStamp(msgspec.Struct):
    """The stamp of the index and of the archives that it covers; see `index.build.stamp_for`."""

    version: str
    bytes: int
    crc32: int
    archives: dict[str, int]
    steps: dict[str, int] | None = None


class StillwebMember(msgspec.Struct):
    """The `stillweb` member of datapackage.json."""

    id: str | None = None
    index: IndexStamp | None = None
    profile: Profile | None = None
    settings: dict[str, Any] | None = None
    rules: StoredRules | None = None


@dataclass(slots=True)
class Container:
    """An opened path.

    `archives` maps names without folder to archive files; `members` maps full names to all other files.
    """

    path: str
    kind: str  # "wacz", "directory", "archive" or "several" (WACZs or bare archives in a zip)
    archives: dict[str, ByteSource]
    members: dict[str, ByteSource] = field(default_factory=dict)
    stamp: str = ""  # identifies the bytes: names, sizes and modification times of the files
    package: dict[str, Any] = field(default_factory=dict)
    zip_source: ByteSource | None = None  # the zip file itself
    plain: set[str] = field(default_factory=set)  # names of archives that were replaced by a plain copy
    doubted: str = ""  # why datapackage.json is distrusted
    left_out: list[str] = field(default_factory=list)  # members that are not read, with the reason

    def member(self, name: str) -> bytes | None:
        """Return the bytes of a member, or None if it doesn't exist.

        Raises TooLarge above LARGEST_MEMBER bytes.
        """
        place = self.members.get(name)
        if place is not None and place.size > LARGEST_MEMBER:
            raise TooLarge(f"{self.path}: {name} has more than {LARGEST_MEMBER >> 20} MB")
        return None if place is None else place.read(0, place.size)

    @property
    def own(self) -> dict[str, Any]:
        """The `stillweb` object of datapackage.json; empty for snapshots made by other tools."""
        value = self.package.get("stillweb")
        return value if isinstance(value, dict) else {}

    @property
    def rules(self) -> Any:
        """The rules of a sealed snapshot; None if absent, False if datapackage.json is distrusted."""
        return False if self.doubted else self.own.get("rules")

    @property
    def size(self) -> int:
        """Total bytes of all archives."""
        return sum(place.size for place in self.archives.values())

    def make_plain(self, name: str) -> None:
        """Replace an archive that can't be read by offset by a plain copy, unless that was done before."""
        if name in self.plain:
            return
        place = self.archives[name]
        stamp = f"plain 2 {self.stamp} {name} {place.size}"
        copy = derived_file("plain.warc", stamp, lambda out: unpack_archive(place, out))
        place.close()
        self.archives[name] = FileSource(copy, name=name)
        self.plain.add(name)

    def close(self) -> None:
        for place in (*self.archives.values(), *self.members.values()):
            place.close()
        if self.zip_source is not None:
            self.zip_source.close()


def unpack_archive(place: ByteSource, out: BinaryIO) -> None:
    """Write the uncompressed bytes of all members of an archive to `out`.

    Stops at damage. A record cut there is detected by its length. After a complete record, a line that is
    no record is written, so that the scan reports the damage.
    """
    at = 0
    tail = b"\r\n\r\n"
    while at < place.size:
        unpacker = warc.decompressor(place.read(at, 4), place)
        if unpacker is None:
            at += 1  # skip padding between members
            continue
        # small pieces: damage in a piece loses all output of that piece
        for piece in chunks(place, at, size=PIECE // 16):
            try:
                for part in unpacker.feed(piece):
                    out.write(part)
                    tail = (tail + part[-4:])[-4:]
            except ValueError:
                if tail == b"\r\n\r\n":
                    out.write(b"damaged compressed data at offset %d\r\n" % at)
                return
            at += len(piece)
            if unpacker.eof:
                at -= len(unpacker.rest)
                break
        else:
            return


def stamp_of(path: Path) -> str:
    """Return a string that identifies the bytes of a file: path, size and modification time."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def open_directory(root: Path) -> Container:
    """Open a snapshot directory or a folder of WARC files. Raises DamagedInput for any other folder."""
    # The folders in `root` may be links (to a larger disk), which `root.rglob` would not follow.
    found = (q for p in root.iterdir() for q in ([p] if p.is_file() else p.rglob("*")))
    files = sorted(p for p in found if p.is_file() and not p.name.startswith("."))
    names = {p.relative_to(root).as_posix(): p for p in files}
    archives = {n: p for n, p in names.items() if n.startswith(ARCHIVE) and n.endswith(SUFFIXES)}
    if not archives and not (root / "archive").is_dir():
        archives = {n: p for n, p in names.items() if "/" not in n and n.endswith(SUFFIXES)}
        if not archives:
            raise DamagedInput(f"{root}: no snapshot: it has no archive/ and no WARC files")
    container = Container(
        str(root),
        "directory",
        {n.removeprefix(ARCHIVE): FileSource(p) for n, p in archives.items()},
        {n: FileSource(p) for n, p in names.items() if n not in archives and n.count("/") < 2},
        "\n".join(stamp_of(p) for p in archives.values()),
    )
    container.package = read_package(container)
    return container


def read_package(container: Container) -> dict[str, Any]:
    """Return datapackage.json as an object, or {} if it is missing, broken or distrusted.

    A file written by Stillweb is distrusted if its hash differs from that in datapackage-digest.json.
    """
    try:
        data = container.member(PACKAGE)
    except TooLarge as error:
        container.left_out.append(DamageNote(str(error)))
        return {}
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    ours = not isinstance(value, dict) or b"stillweb" in data
    if ours and (wanted := _hash_told(container)) and wanted != "sha256:" + hashlib.sha256(data).hexdigest():
        container.doubted = f"has another hash than {DIGEST} says"
    elif isinstance(value, dict) and "stillweb" in value:
        try:
            convert(value["stillweb"], StillwebMember)
            must_be_unicode(value["stillweb"])
        except ValueError as error:
            container.doubted = f"its member stillweb can't be read ({error})"
    return value if isinstance(value, dict) and not container.doubted else {}


def _hash_told(container: Container) -> str:
    try:
        return str(json.loads(container.member(DIGEST) or b"{}").get("hash") or "")
    except (ValueError, AttributeError, RecursionError, TooLarge):
        return ""
