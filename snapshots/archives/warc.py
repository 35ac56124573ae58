"""One WARC record: its head, its block, written and read at an offset.

Format: ISO 28500:2017 (WARC 1.1), https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
Records are gzip members of their own (made by `stillweb.snapshots.archives.members`). Reading also knows WARC 1.0 and 0.x, ARC, plain
files and Zstandard frames; it follows Content-Length, and where that is wrong takes what is there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isal import isal_zlib

from stillweb.snapshots.archives.digests import Proof
from stillweb.snapshots.decompression import (
    GZIP,
    IN_MEMORY,
    Inflate,
    Stream,
    TooLarge,
    Zstd,
    too_large,
    within,
)
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.machine.places import Place

zlib_error: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_HEAD = 1 << 20  # a head longer than this is damage
MAX_DIGITS = 18  # of a length
MAX_DICTIONARY = 1 << 24  # unpacked bytes of a Zstandard dictionary, of which most are of 100 kB
REVISIT_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"

_VERSION = re.compile(rb"WARC/(?:1\.[01]|0\.1[0-9])[ \t]*\r*\n")
_END_OF_HEAD = re.compile(rb"\r*\n\r*\n")
_ARC_NAME = re.compile(rb"[^ \r\n]:")
_ARC_DATE = re.compile(rb" [0-9]{8,17} ")
_ARC_2 = re.compile(r" [0-9]{14} [^ ]+ [0-9]{3} [^ ]+ [^ ]+ [0-9]+ [^ ]+ [0-9]+$")

Fields = dict[str, str]


@dataclass(slots=True)
class Record:
    """A record that was read whole."""

    kind: str  # "response", "request", …
    block: bytes
    declared: int  # Content-Length of the record; len(block) if they agree
    ours: bool  # whether it is an exchange that was recorded here
    _head: bytes  # without its first line
    _fields: Fields | None = None

    @property
    def fields(self) -> Fields:
        """By lower-case name, the first of a repeated one; taken apart when asked for."""
        if self._fields is None:
            self._fields = parse_fields(self._head)
        return self._fields

    @property
    def uri(self) -> str:
        """WARC-Target-URI, without the angle brackets that wget wrote and with spaces escaped."""
        return clean_uri(self.fields.get("warc-target-uri", ""))


def clean_uri(uri: str) -> str:
    """A target URI as it should have been written."""
    if uri.startswith("<") and uri.endswith(">"):
        uri = uri[1:-1]
    return uri.replace(" ", "%20") if " " in uri else uri


def digest(data: bytes) -> str:
    """The form of digest that warcio, FastWARC, jwarc and pywb all verify: SHA-256 in hex."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def end_of_head(data: bytes, start: int = 0) -> tuple[int, int] | None:
    """Where the empty line after a head begins and where it ends, or None. Lone LFs are taken too."""
    at = data.find(b"\r\n\r\n", start)
    if at >= 0 and data.find(b"\n\n", start, at) < 0 and data.find(b"\n\r\r\n", start, at) < 0:
        return at, at + 4
    found = _END_OF_HEAD.search(data, start)
    return (found.start(), found.end()) if found else None


def is_regular(head: bytes) -> bool:
    """Whether each line of a head is one field and ends as it should, so that it can be read quickly."""
    return not (
        b"\r\n " in head
        or (b"\t" in head and b"\r\n\t" in head)  # one byte is looked for much quicker
        or b" :" in head
        or head.count(b"\n") != head.count(b"\r\n")
    )


def parse_fields(head: bytes) -> Fields:
    """Named fields by lower-case name; folded lines are joined; the first of a repeated field wins.

    UTF-8 as the standard says, Latin-1 where that fails.
    """
    try:
        text = head.decode()
    except UnicodeDecodeError:
        text = head.decode("latin-1")
    if is_regular(head):
        parts = [line.partition(":") for line in text.split("\r\n")]
        parts.reverse()
        return {name.lower(): value.strip() for name, colon, value in parts if colon}
    fields: Fields = {}
    last = ""
    for line in text.split("\n"):
        if line[:1] in (" ", "\t") and last:
            fields[last] = f"{fields[last]} {line.strip()}".strip()
            continue
        name, colon, value = line.partition(":")
        if colon:
            last = name.strip().lower()
            fields.setdefault(last, value.strip())
    return fields


def starts_record(data: bytes, at: int = 0) -> bool:
    """Whether a WARC version line or an ARC record line stands here."""
    return _VERSION.match(data, at) is not None or _arc_line(data, at) is not None


def _arc_line(data: bytes, at: int) -> bytes | None:
    """The ARC record line that stands here: a URL, what else, a date, what else, a number.

    Looked for part by part: one pattern for all of it takes the cube of the length of what is no such line.
    """
    end = data.find(b"\n", at) + 1
    line = data[at:end]
    name = _ARC_NAME.search(line)
    date = _ARC_DATE.search(line, name.end()) if name else None
    if date is None:
        return None
    text = line[:-1].removesuffix(b"\r")
    number = text.rstrip(b" \t")
    return line if b"\r" not in text and number[date.end() :][-1:].isdigit() else None


def parse_head(data: bytes, start: int = 0) -> tuple[Fields, int] | None:
    """The fields of the record that starts at `start` and where its block starts; None if there is none.

    An ARC record line is given the fields of the WARC record that it would be.
    """
    version = _VERSION.match(data, start)
    if version:
        end = end_of_head(data, version.end() - 1)  # a head may have no field at all
        if end is None:
            return None
        return parse_fields(data[version.end() : end[0]]), end[1]
    line = _arc_line(data, start)
    if line:
        return _arc_fields(line.decode("latin-1").strip()), start + len(line)
    return None


def _arc_fields(line: str) -> Fields:
    """ARC 1.0: URL IP date content-type length (https://archive.org/web/researcher/ArcFileFormat.php).

    ARC 2.0 has a status, checksum, location, offset and file name before the length.
    """
    if _ARC_2.search(line):
        first, length = line.rsplit(" ", 6)[::6]
        line = f"{first} {length}"
    parts = line.rsplit(" ", 4)
    if len(parts) < 5:  # no content type
        parts = [*line.rsplit(" ", 3), ""]
        parts[3], parts[4] = "", parts[3]
    uri, address, date, _, length = parts
    date = (date + "00000000000000")[:14]
    iso = f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[8:10]}:{date[10:12]}:{date[12:14]}Z"
    if uri.startswith("filedesc:"):
        return {"arc": "1", "warc-type": "warcinfo", "warc-date": iso, "content-length": length}
    return {
        "arc": "1",
        "warc-type": "response",
        "warc-target-uri": uri,
        "warc-date": iso,
        "warc-ip-address": address,
        "content-type": "application/http;msgtype=response",
        "content-length": length,
    }


def declared_length(fields: Fields) -> int:
    """Return the Content-Length of a record, -1 if missing or no number that a file can hold."""
    value = fields.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS else -1


def read_record(place: Place, offset: int, length: int) -> Record:
    """The record at an offset, whole in memory.

    `length` is of the stored (compressed) bytes. Raises DamagedInput with file and offset, also where a block that no
    check sum guards has another digest than its record says.
    """
    raw = place.read(offset, length)
    record = _record(unpack(raw, place, offset), place, offset)
    if not proved(raw):
        proof = Proof(record.fields.get("warc-block-digest"))
        proof.feed(record.block)
        if not proof.holds():
            raise not_held(place.name, offset)
    return record


def _record(data: bytes, place: Place, offset: int) -> Record:
    """The record that unpacked bytes are."""
    plain = _PLAIN_HEAD.match(data)
    if plain is not None:
        kind, middle, size = plain.groups()
        start, declared = plain.end(), int(size)
        ours = b"\nwarc-stillweb-session:" in (b"\n" + middle).lower()
        block = _block(data, start, declared)
        return Record(kind.decode(), block, declared, ours, data[_FIRST_LINE : start - 4])
    head = parse_head(data)
    if head is None:
        raise DamagedInput(f"{place.name}: no WARC record at offset {offset}; rebuild the index")
    fields, start = head
    declared = declared_length(fields)
    kind_, ours = fields.get("warc-type", "").lower(), "warc-stillweb-session" in fields
    return Record(kind_, _block(data, start, declared), declared, ours, b"", fields)


def proved(stored: bytes) -> bool:
    """Whether what is stored has a check sum of its own: a gzip member. A Zstandard frame need not have one."""
    return stored[:2] == GZIP_MAGIC


def not_held(name: str, offset: int) -> DamagedInput:
    """What is said of a record whose block is not the one that was written."""
    return DamagedInput(f"{name}: the record at offset {offset} is damaged: its block digest is wrong")


# As `build_head` writes it: no other field can be one of those that count.
_PLAIN_HEAD = re.compile(
    rb"WARC/1\.1\r\nWARC-Type: ([a-z]+)\r\n((?:WARC-[A-Za-z0-9-]+:[^\r\n]*\r\n)*)"
    rb"Content-Type:[^\r\n]*\r\nContent-Length: ([0-9]{1,18})\r\n\r\n"
)
_FIRST_LINE = len(b"WARC/1.1\r\n")


def _block(data: bytes, start: int, declared: int) -> bytes:
    """The block of an unpacked record; what there is, where its length is not told or too large."""
    if declared < 0 or start + declared > len(data):
        return data[start:].removesuffix(b"\r\n\r\n")
    return data[start : start + declared]


def unpack(raw: bytes, place: Place, offset: int) -> bytes:
    """Return the bytes of one stored record: a gzip member, a Zstandard frame or plain.

    Raises DamagedInput, and TooLarge for a record that would fill the memory.
    """
    magic = raw[:4]
    if magic[:2] == GZIP_MAGIC:
        z = isal_zlib.decompressobj(GZIP)
        try:
            data: bytes = z.decompress(raw, IN_MEMORY)
            if z.eof and not z.unused_data:
                return data
            if len(data) >= IN_MEMORY:
                raise _too_large(place, offset)
        except zlib_error:  # damage, or padding after the member, which is none
            pass
    if is_member(magic):
        parts = unpack_stream([raw], place, offset)
        return b"".join(within(parts, IN_MEMORY, lambda: _too_large(place, offset)))
    if not raw:
        raise DamagedInput(f"{place.name}: nothing at offset {offset}; the file is shorter than its index")
    return raw


def _too_large(place: Place, offset: int) -> TooLarge:
    return TooLarge(too_large(f"{place.name}: the record at offset {offset}", IN_MEMORY))


def zstd_dictionary(place: Place) -> bytes | None:
    """The dictionary in the first (skippable) frame of a .warc.zst, if there is one.

    https://iipc.github.io/warc-specifications/specifications/warc-zstd/
    """
    head = place.read(0, 8)
    if head[:4] != b"\x5d\x2a\x4d\x18":
        return None
    size = int.from_bytes(head[4:8], "little")
    data = place.read(8, size)
    if data[:4] == ZSTD_MAGIC:
        import zstandard

        try:
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_DICTIONARY)
        except zstandard.ZstdError as error:
            raise DamagedInput(f"{place.name}: the Zstandard dictionary at offset 8 is damaged") from error
    return data


def is_member(lead: bytes) -> bool:
    """Whether a gzip member or Zstandard frame begins with these bytes."""
    return lead[:2] == GZIP_MAGIC or lead[:4] == ZSTD_MAGIC


def decompressor(magic: bytes, place: Place) -> Stream | None:
    """Return what unpacks one member or frame, or None for plain bytes."""
    if magic[:2] == GZIP_MAGIC:
        return Inflate(GZIP, isal_zlib)
    if magic[:4] == ZSTD_MAGIC:
        return Zstd(zstd_dictionary(place))
    return None


def first_part(unpacker: Stream, piece: bytes) -> bytes:
    """The first unpacked bytes of a member, to see what it is. Raises ValueError."""
    return next(unpacker.feed(piece), b"")


def unpack_stream(pieces: Iterable[bytes], place: Place, offset: int) -> Iterator[bytes]:
    """The unpacked bytes of one stored record, piece by piece.

    Raises DamagedInput at damage, at the latest when all has come: a check sum stands at the end.
    """
    unpacker: Stream | None = None
    first = True
    for piece in pieces:
        if first:
            unpacker = decompressor(piece[:4], place)
            first = False
        if unpacker is None:
            yield piece
            continue
        try:
            yield from unpacker.feed(piece)
        except ValueError as error:
            raise DamagedInput(
                f"{place.name}: the record at offset {offset} is damaged: {error or 'it can not be unpacked'}"
            ) from None
        if unpacker.eof:
            return
    if unpacker is not None:
        raise DamagedInput(f"{place.name}: the record at offset {offset} is cut short")


def build_head(kind: str, fields: Iterable[tuple[str, str]], length: int) -> bytes:
    """The head of a WARC 1.1 record with its empty line. Line breaks in values become spaces."""
    lines = ["WARC/1.1", "WARC-Type: " + kind]
    lines += [name + ": " + value for name, value in fields if value]
    lines.append(f"Content-Length: {length}")
    if any("\n" in line or "\r" in line for line in lines):
        lines = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    return "\r\n".join(lines).encode(errors="surrogateescape") + b"\r\n\r\n"
