"""Opening of snapshots and archives: WACZ (zip or directory), bare WARC or ARC, HAR and mitmproxy flows.

A path is local or an fsspec URL. A multi-WACZ package is opened as one container. Recordings in other formats
are converted to a snapshot in the cache first.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from stillweb.snapshots._os.cache import derived_file
from stillweb.snapshots._os.random_access import (
    CHUNK,
    ByteSource,
    FileSource,
    MemorySource,
    Reader,
    SourceRange,
    chunks,
)
from stillweb.snapshots.decompression import GZIP, MOST, TooLarge, too_large
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.http.encodings import EncodingProblem, decode_pieces, request_coding
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.remote import RemoteFile, RemoteSource, drop_old_blocks, is_remote, open_store
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.container import (
    ARCHIVE,
    LARGEST_MEMBER,
    PACKAGE,
    SMALL,
    SUFFIXES,
    Container,
    open_directory,
    read_package,
    stamp_of,
)
from stillweb.snapshots.warc.scan import boundary_after

# Raised by zipfile for a file that is not a zip, has wrong offsets, or can't be unpacked.
BAD_ZIP = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, IndexError, OverflowError,
)  # fmt: skip
PUBLISHED = "stillweb-package"  # profile of the datapackage.json of a published folder
PROFILES = ("multi-wacz-package", PUBLISHED)
LIKELY = 10  # highest plausible ratio of unpacked to compressed size
# Bytes of a zip's list of files; Python's zipfile takes ten times as much memory for it
LARGEST_LIST = 1 << 24


def open_container(path: str | os.PathLike[str]) -> Container:
    """Open the snapshot or archive at a path or URL. Raises UsageError and DamagedInput."""
    if not os.fspath(path):
        raise UsageError("the path of the snapshot is empty")
    if is_remote(path):
        return _remote(str(path))
    local = Path(str(path).removeprefix("file://"))
    if not local.exists():
        raise UsageError(f"{path}: no such file or directory")
    if local.is_dir():
        listed = local / PACKAGE
        if listed.is_file() and not (local / "archive").is_dir():
            place = FileSource(listed)
            if (several := _listed(place, str(listed), stamp_of(listed))) is not None:
                return several
            place.close()
        return open_directory(local)
    if not local.is_file():  # a pipe can be read only once, but containers need random access
        raise UsageError(f"{path}: is not a file but a pipe or device; write what it gives to a file")
    return _file(FileSource(local), str(local), stamp_of(local))


def _file(
    place: ByteSource, name: str, stamp: str, files: Mapping[str, RemoteFile] | None = None
) -> Container:
    """Open one file; `files` are those of its folder, if it lies in a store that lists them."""
    lead = place.read(0, 4096)
    if lead[:2] == b"PK":
        return _zip(place, name, stamp)
    # an archive by its suffix, with a damaged first record, can still have good ones after it
    if _is_archive(place, lead) or (name.endswith(SUFFIXES) and boundary_after(place, 0) is not None):
        return Container(name, "archive", {name.rstrip("/").rpartition("/")[2]: place}, {}, stamp)
    if (several := _listed(place, name, stamp, files)) is not None:
        return several
    from stillweb.snapshots.importers import convert_to_cache

    if coding := request_coding(lead, None):
        place = _unpacked_file(place, name, stamp, coding)
    converted = convert_to_cache(place, name, stamp)
    if converted is None:
        place.close()
        what = "is empty" if not lead else "is not a WACZ, WARC, ARC, HAR or mitmproxy flow file"
        raise DamagedInput(f"{name}: {what}")
    return open_directory(converted)


def _unpacked_file(place: ByteSource, name: str, stamp: str, coding: str) -> ByteSource:
    """Return the content of a compressed file, such as `browsertime.har.gz` or mitmproxy's `.zhar`. Raises DamagedInput."""

    def unpack(out: BinaryIO) -> None:
        try:
            out.writelines(decode_pieces(_pieces(place), coding))
        except EncodingProblem as error:
            raise DamagedInput(f"{name}: {error}") from error

    unpacked = derived_file("unpacked", f"unpacked {stamp} {place.name}", unpack)
    place.close()
    return FileSource(unpacked, name=name)


def _pieces(place: ByteSource) -> Iterator[bytes]:
    for at in range(0, place.size, CHUNK):
        yield place.read(at, CHUNK)


def _is_archive(place: ByteSource, lead: bytes) -> bool:
    if lead[1:4] == b"\x2a\x4d\x18":
        return True
    unpacker = warc.decompressor(lead[:4], place)
    if unpacker is None:
        return warc.starts_record(lead.lstrip(b"\r\n"))
    try:
        return warc.starts_record(warc.first_part(unpacker, lead).lstrip(b"\r\n"))
    except ValueError:
        return lead[:2] == warc.GZIP_MAGIC and warc.starts_record(_before_damage(lead).lstrip(b"\r\n"))


def _before_damage(lead: bytes) -> bytes:
    """Return the readable start of a damaged gzip member: one bad record must not hide the others."""
    z = zlib.decompressobj(GZIP)
    found = b""
    try:
        for byte in lead:
            found += z.decompress(bytes((byte,)))
    except zlib.error:
        pass
    return found


def _zip(place: ByteSource, name: str, stamp: str) -> Container:
    if list_size(place) > LARGEST_LIST:
        raise TooLarge(f"{name}: the zip's list of files has more than {LARGEST_LIST >> 20} MB")
    try:
        with zipfile.ZipFile(Reader(place)) as listing:
            # macOS packs the attributes of each file beside it
            listed = [
                e for e in listing.infolist() if not e.is_dir() and not e.filename.startswith("__MACOSX/")
            ]
            # archives first: other files do not keep them from being read; of one name, the last, as unzip leaves it
            entries = sorted(
                {e.filename: e for e in listed}.values(), key=lambda e: not e.filename.startswith(ARCHIVE)
            )
            most = max(MOST, LIKELY * sum(e.compress_size for e in entries if _is_packed(e)))
            left = most  # bytes that the rest may unpack to
            places: dict[str, ByteSource] = {}
            left_out: list[str] = []
            over: list[str] = []
            if again := [n for n, times in Counter(e.filename for e in listed).items() if times > 1]:
                left_out.append(
                    DamageNote(
                        f"{name}!{_and_more(again)}: stands more than once in the zip: only the last is read"
                    )
                )
            for entry in entries:
                if _is_packed(entry) and left < entry.file_size <= largest(entry):
                    over.append(entry.filename)
                    continue
                try:
                    places[entry.filename] = _entry(place, listing, entry, f"{name}!{entry.filename}", stamp)
                except TooLarge as error:
                    left_out.append(DamageNote(f"{error}: it is not read"))
                else:
                    left -= entry.file_size if _is_packed(entry) else 0
            if over:
                left_out.append(
                    DamageNote(
                        f"{name}!{_and_more(over)}: the files together unpack to more than {most >> 20} MB: not read"
                    )
                )
    except BAD_ZIP as error:
        # Python's message for a file with a zip's start but without its end
        cut = str(error) == "File is not a zip file"
        why = "it is cut short: the list of its files, at its end, is missing" if cut else error
        raise DamagedInput(f"{name}: the zip is damaged: {why}") from error
    archives = {n: p for n, p in places.items() if n.startswith(ARCHIVE) and n.endswith(SUFFIXES)}
    nested = {n: p for n, p in places.items() if n.endswith(".wacz")}
    if not archives and nested:
        parts = [(n, _zip(p, f"{name}!{n}", f"{stamp} {n}")) for n, p in sorted(nested.items())]
        return _together(name, stamp, parts, place, left_out)
    if left_out and not archives:
        raise DamagedInput(left_out[0])
    if not archives and not any(
        n.startswith((ARCHIVE, "indexes/", "pages/")) or n == PACKAGE for n in places
    ):
        bare = {n: p for n, p in places.items() if n.endswith(SUFFIXES)}
        if bare:
            return Container(name, "several", bare, {}, stamp, zip_source=place)
        return _zipped_har(place, name, stamp, places)
    container = Container(
        name,
        "wacz",
        {n.removeprefix(ARCHIVE): p for n, p in archives.items()},
        {n: p for n, p in places.items() if n not in archives},
        stamp,
        zip_source=place,
        left_out=left_out,
    )
    container.package = read_package(container)
    return container


def _and_more(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def _zipped_har(place: ByteSource, name: str, stamp: str, places: dict[str, ByteSource]) -> Container:
    """Open a HAR in a zip together with its bodies, or a trace; Playwright writes both."""
    from stillweb.snapshots.importers import convert_to_cache

    hars = sorted(n for n in places if n.endswith(".har"))
    traced = sorted(n for n in places if n.endswith(".network"))
    if traced and not hars:
        hars = traced[:1]
        lines = [places[n].read(0, places[n].size) for n in traced]
        places[hars[0]] = MemorySource(b"\n".join(lines), f"{name}!{hars[0]}")
    if not hars:
        raise DamagedInput(f"{name}: a zip without WACZ, WARC, ARC or HAR files")
    if len(hars) > 1:
        raise DamagedInput(f"{name}: a zip of several HARs: take it apart, and `stillweb import` them")
    folder = hars[0][: hars[0].rfind("/") + 1]
    beside = {n.removeprefix(folder): place for n, place in places.items() if n.startswith(folder)}
    converted = convert_to_cache(places[hars[0]], f"{name}!{hars[0]}", stamp, beside)
    place.close()
    if converted is None:
        raise DamagedInput(f"{name}!{hars[0]}: is not a HAR")
    return open_directory(converted)


def _together(
    name: str,
    stamp: str,
    parts: list[tuple[str, Container]],
    whole: ByteSource | None,
    left_out: Iterable[str] = (),
) -> Container:
    """Merge several WACZs under prefixed names; their indexes are dropped and rebuilt."""
    together = Container(name, "several", {}, {}, stamp, zip_source=whole, left_out=[*left_out])
    for part, container in parts:
        together.left_out += container.left_out
        together.archives |= {f"{part}/{n}": place for n, place in container.archives.items()}
        for member, place in container.members.items():
            if member.startswith("pages/"):
                together.members[f"pages/{part}/{member.removeprefix('pages/')}"] = place
            else:
                place.close()
    return together


def _listed(
    place: ByteSource, name: str, stamp: str, files: Mapping[str, RemoteFile] | None = None
) -> Container | None:
    """Open the WACZs that a multi-wacz-package (JSON) or a published folder lists; None for any other file.

    They are taken from the folder of the list only, and never fetched from elsewhere.
    """
    if (
        not place.read(0, 64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        or place.size > LARGEST_MEMBER
    ):
        return None
    try:
        value = json.loads(place.read(0, place.size).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("profile") not in PROFILES:
        return None
    listed = value.get("resources")
    if not isinstance(listed, list) or not listed:
        raise DamagedInput(f"{name}: lists no WACZ")
    parts: dict[str, tuple[ByteSource, str]] = {}
    for number, resource in enumerate(listed):
        declared = resource if isinstance(resource, dict) else {}
        path = str(declared.get("path") or declared.get("name") or "").partition("?")[0]
        if value["profile"] == PUBLISHED and not path.endswith(".wacz"):
            continue
        found = _beside(name, path, declared, files)
        if found is None:
            raise DamagedInput(
                f"{name}: resource {number} ({path or 'no path'}) is not beside it, and remote ones are not fetched"
            )
        parts[found[0]] = found[1:]
    place.close()
    if not parts:
        raise DamagedInput(f"{name}: lists no .wacz file")
    opened = [(called, _zip(part, part.name, of_part)) for called, (part, of_part) in parts.items()]
    if len(opened) == 1:
        return opened[0][1]
    return _together(name, "\n".join([stamp, *(one.stamp for _, one in opened)]), opened, None)


def _beside(
    name: str, path: str, declared: Mapping[str, Any], files: Mapping[str, RemoteFile] | None
) -> tuple[str, ByteSource, str] | None:
    """Return the file that a list names by `path`, in the folder of the list or below: its path there, it, its stamp."""
    if path.startswith("/") or ".." in path.split("/") or not path:
        path = path.rpartition("/")[2]
    folder = name.rpartition("/")[0]
    for called in dict.fromkeys((path, path.rpartition("/")[2])):
        if not called:
            continue
        if not is_remote(name):
            here = Path(folder or ".") / called
            if here.is_file():
                return called, FileSource(here), stamp_of(here)
            continue
        if files is not None and "" not in files:
            file = files.get(called)
        else:
            try:
                file = open_store(f"{folder}/{called}").files().get("")
            except UsageError:
                file = None
        if file is not None:
            blocks = declared.get("blocks")
            stamp = str(declared.get("hash")) if isinstance(blocks, str) else stamp_of_remote(file)
            return (
                called,
                RemoteSource(file, blocks.split() if isinstance(blocks, str) else None, f"{folder}/{called}"),
                stamp,
            )
    return None


def _entry(
    place: ByteSource, listing: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, stamp: str
) -> ByteSource:
    """Return a zip entry as a byte source.

    Stored entries are read in place. Compressed ones are unpacked into memory, or into the cache if they are
    large.
    """
    if entry.flag_bits & 1:
        raise DamagedInput(f"{name}: is encrypted")
    if entry.compress_type == zipfile.ZIP_STORED:
        # name and extra field may have other lengths in the local header than in the directory (APPNOTE 4.3.7)
        local = place.read(entry.header_offset, 30)
        if local[:4] != b"PK\x03\x04":
            raise DamagedInput(f"{name}: its local header at offset {entry.header_offset} is damaged")
        skip = 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        base = entry.header_offset + skip
        if base + entry.file_size > place.size:
            raise DamagedInput(f"{name}: the zip is cut short")
        if isinstance(place, FileSource) and entry.filename.startswith((ARCHIVE, "indexes/")):
            # archives and indexes are read often and get a descriptor each; the other entries share one
            return FileSource(place.path, base=base, size=entry.file_size, name=name)
        return SourceRange(place, base, entry.file_size, name)
    if entry.file_size > largest(entry):
        raise TooLarge(too_large(name, largest(entry)))
    if entry.file_size < SMALL:
        return MemorySource(b"".join(_unpacked(listing, entry)), name)

    def unpack(out: BinaryIO) -> None:
        out.writelines(_unpacked(listing, entry))

    return FileSource(derived_file("entry", f"entry {stamp} {entry.filename}", unpack), name=name)


def list_size(place: ByteSource) -> int:
    """Return the bytes of a zip's list of files, as the records at its end say (APPNOTE 4.3.14 to 4.3.16); 0 for what is not a zip."""
    for most in (98, (1 << 16) + 200):  # bytes of these records, without a comment and with any
        start = max(0, place.size - most)
        end = place.read(start, place.size - start)
        plain = end[-22:-18] == b"PK\x05\x06" and end[-2:] == b"\0\0"
        if plain:
            break
    at = len(end) - 22 if plain else end.rfind(b"PK\x05\x06")
    sizes = [end[at + 12 : at + 16]] if at >= 0 else []
    if at >= 76 and end[at - 20 : at - 16] == b"PK\x06\x07":  # ZIP64's records stand before it
        where = int.from_bytes(end[at - 12 : at - 4], "little")
        sizes += [end[at - 76 + 40 : at - 76 + 48], place.read(where + 40, 8)]
    return max((int.from_bytes(size, "little") for size in sizes), default=0)


def _is_packed(entry: zipfile.ZipInfo) -> bool:
    return entry.compress_type != zipfile.ZIP_STORED


def largest(entry: zipfile.ZipInfo) -> int:
    """Return how many bytes an entry may unpack to. A stored entry can't be a zip bomb."""
    return (
        entry.file_size
        if entry.compress_type == zipfile.ZIP_STORED
        else max(MOST, LIKELY * entry.compress_size)
    )


def _unpacked(listing: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield an entry's data in pieces; reading it whole would unpack more than the declared size."""
    with listing.open(entry) as source:
        while piece := source.read(CHUNK):
            yield piece


def _remote(address: str) -> Container:
    """Open the snapshot at a remote address: one file, a published folder, or the folder of an open snapshot."""
    files = open_store(address).files()
    drop_old_blocks()
    if "" in files:
        return _file(RemoteSource(files[""], name=address), address, stamp_of_remote(files[""]))
    archives = {n: f for n, f in files.items() if n.startswith(ARCHIVE) and n.endswith(SUFFIXES)}
    waczs = [n for n in files if n.endswith(".wacz")]
    if not archives and (PACKAGE in files or len(waczs) == 1):
        first = PACKAGE if PACKAGE in files else waczs[0]
        place = RemoteSource(files[first], name=f"{address}/{first}")
        return _file(place, place.name, stamp_of_remote(files[first]), files)
    if not archives:
        raise DamagedInput(f"{address}: no snapshot: it has no archive/, no {PACKAGE} and not one .wacz file")
    places = {n: RemoteSource(f, name=f"{address}/{n}") for n, f in files.items()}
    container = Container(
        address,
        "directory",
        {n.removeprefix(ARCHIVE): places[n] for n in archives},
        {n: place for n, place in places.items() if n not in archives},
        "\n".join(stamp_of_remote(f) for f in archives.values()),
    )
    container.package = read_package(container)
    return container


def local_copy(address: str) -> str:
    """Copy the snapshot file at a remote address into the cache and return the path of the copy.

    Raises UsageError for a remote folder that was not sealed.
    """
    container = _remote(address)
    whole = container.zip_source or (
        next(iter(container.archives.values())) if container.kind == "archive" else None
    )
    if not isinstance(whole, RemoteSource):
        raise UsageError(
            f"{address}: is not one file. Seal it (`stillweb seal`), or `stillweb pull` it first."
        )

    def copy(out: BinaryIO) -> None:
        out.writelines(chunks(whole))

    path = derived_file(whole.name.rpartition("/")[2] or "copy", f"copy {container.stamp}", copy)
    container.close()
    return str(path)


def stamp_of_remote(file: RemoteFile) -> str:
    """Return a text that changes with the bytes of a remote file."""
    return f"{file.name} {file.size} {file.version}"
