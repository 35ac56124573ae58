"""WARC records: heads and blocks, written, and read at an offset.

Format: ISO 28500:2017 (WARC 1.1), https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
Each record is its own gzip member (made by `stillweb.snapshots.warc.members`). The reader also accepts
WARC 1.0 and 0.x, ARC, plain files and Zstandard frames. It follows Content-Length; if that is wrong, it
takes the bytes there are.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from isal import isal_zlib

from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.decompression import (
    GZIP,
    IN_MEMORY,
    Inflate,
    Stream,
    TooLarge,
    Zstd,
    bounded_parts,
    too_large,
)
from stillweb.snapshots.errors import DamagedInput

zlib_error: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_HEAD = 1 << 20  # a longer head is damage
MAX_DIGITS = 18  # maximum digits of a length
MAX_DICTIONARY = 1 << 24  # bytes of a Zstandard dictionary, packed or not; most have 100 kB
REVISIT_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"

_VERSION = re.compile(rb"WARC/(?:1\.[01]|0\.1[0-9])[ \t]*\r*\n")
_END_OF_HEAD = re.compile(rb"\r*\n\r*\n")
_ARC_NAME = re.compile(rb"[^ \r\n]:")
_ARC_DATE = re.compile(rb" [0-9]{8,17} ")
_ARC_2 = re.compile(r" [0-9]{14} [^ ]+ [0-9]{3} [^ ]+ [^ ]+ [0-9]+ [^ ]+ [0-9]+$")

Fields = dict[str, str]


@dataclass(slots=True)
class Record:
    kind: str  # "response", "request", …
    block: bytes
    declared: int  # Content-Length of the record; len(block) if they agree
    ours: bool  # True for an exchange that Stillweb recorded
    _head: bytes  # without its first line
    _fields: Fields | None = None

    @property
    def fields(self) -> Fields:
        """Values by lower-case field name, the first of a repeated field; parsed on first use."""
        if self._fields is None:
            self._fields = parse_fields(self._head)
        return self._fields

    @property
    def uri(self) -> str:
        """WARC-Target-URI without wget's angle brackets, with spaces escaped."""
        return clean_uri(self.fields.get("warc-target-uri", ""))


def clean_uri(uri: str) -> str:
    """Return a target URI without angle brackets and with spaces escaped."""
    if uri.startswith("<") and uri.endswith(">"):
        uri = uri[1:-1]
    return uri.replace(" ", "%20") if " " in uri else uri


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex, the digest form that warcio, FastWARC, jwarc and pywb all verify."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def end_of_head(data: bytes, start: int = 0) -> tuple[int, int] | None:
    """Return start and end of the empty line after a head, or None. Lone LFs are accepted."""
    at = data.find(b"\r\n\r\n", start)
    if at >= 0 and data.find(b"\n\n", start, at) < 0 and data.find(b"\n\r\r\n", start, at) < 0:
        return at, at + 4
    found = _END_OF_HEAD.search(data, start)
    return (found.start(), found.end()) if found else None


# the beginning of a status line, as of HTTP, SHOUTcast ("ICY 200 OK"), RTSP or a broken server
_STATUS_LIKE = re.compile(rb"\s{0,4}[A-Za-z]{2,12}(?:/[0-9.,]{0,8})?[ \t]{1,4}-?[0-9]{1,5}")
_HTTP_LIKE = re.compile(rb"HTTP/|ICY ", re.I)


def has_head(media: str, block: bytes) -> bool:
    """Return True if the block of an answer of Content-Type `media` begins with a head, whether its first line is valid or not."""
    return block.startswith(b"HTTP/") or bool(
        (_STATUS_LIKE if media.startswith("application/http") else _HTTP_LIKE).match(block)
    )


def is_regular(head: bytes) -> bool:
    """Return True if each line of a head is one field with a CRLF, so that the fast parser can read it."""
    return not (
        b"\r\n " in head
        or (b"\t" in head and b"\r\n\t" in head)  # searching one byte first is much faster
        or b" :" in head
        or head.count(b"\n") != head.count(b"\r\n")
    )


def parse_fields(head: bytes) -> Fields:
    """Return values by lower-case name. Folded lines are joined; the first of a repeated field wins.

    The head is decoded as UTF-8, as the standard demands, else as Latin-1.
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


def starts_record(data: bytes) -> bool:
    """Return True if the data begins with a WARC version line or an ARC record line."""
    return _VERSION.match(data) is not None or _arc_line(data, 0) is not None


def _arc_line(data: bytes, at: int) -> bytes | None:
    """Return the ARC record line at `at`, or None: a URL, …, a date, …, a number.

    The parts are searched one by one: a single pattern takes cubic time on other lines.
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
    """Return the fields of the record at `start` and the offset of its block, or None if there is no record.

    An ARC record line is translated to the fields of a WARC record.
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
    """Parse ARC 1.0: URL IP date content-type length (https://archive.org/web/researcher/ArcFileFormat.php).

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
    """Return a record's Content-Length, or -1 if it is missing or not a number of at most 18 digits."""
    value = fields.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS else -1


def read_record(place: ByteSource, offset: int, length: int) -> Record:
    """Read the whole record at an offset into memory. `length` counts stored (compressed) bytes.

    Raises DamagedInput with file and offset, also if a block without a checksum of its own has a wrong
    block digest.
    """
    raw = place.read(offset, length)
    record = _record(unpack(raw, place, offset), place, offset)
    if not has_checksum(raw):
        proof = Proof(record.fields.get("warc-block-digest"))
        proof.feed(record.block)
        if not proof.holds():
            raise digest_error(place.name, offset)
    return record


def _record(data: bytes, place: ByteSource, offset: int) -> Record:
    """Parse a record from uncompressed bytes."""
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


def has_checksum(stored: bytes) -> bool:
    """Return True if the stored bytes are a gzip member, which has a checksum (a Zstandard frame may not)."""
    return stored[:2] == GZIP_MAGIC


def digest_error(name: str, offset: int) -> DamagedInput:
    """Return the error for a record whose block digest is wrong."""
    return DamagedInput(f"{name}: the record at offset {offset} is damaged: its block digest is wrong")


# The head as `build_head` writes it. No other field can be one of those that are read here.
_PLAIN_HEAD = re.compile(
    rb"WARC/1\.1\r\nWARC-Type: ([a-z]+)\r\n((?:WARC-[A-Za-z0-9-]+:[^\r\n]*\r\n)*)"
    rb"Content-Type:[^\r\n]*\r\nContent-Length: ([0-9]{1,18})\r\n\r\n"
)
_FIRST_LINE = len(b"WARC/1.1\r\n")


def _block(data: bytes, start: int, declared: int) -> bytes:
    """Return the block of an uncompressed record; all there is if its length is missing or too large."""
    if declared < 0 or start + declared > len(data):
        return data[start:].removesuffix(b"\r\n\r\n")
    return data[start : start + declared]


def unpack(raw: bytes, place: ByteSource, offset: int) -> bytes:
    """Decompress one stored record: a gzip member, a Zstandard frame or plain bytes.

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
        except zlib_error:  # damage, or harmless padding after the member
            pass
    if is_member(magic):
        parts = unpack_stream([raw], place, offset)
        return b"".join(bounded_parts(parts, IN_MEMORY, lambda: _too_large(place, offset)))
    if not raw:
        raise DamagedInput(f"{place.name}: nothing at offset {offset}; the file is shorter than its index")
    return raw


def _too_large(place: ByteSource, offset: int) -> TooLarge:
    return TooLarge(too_large(f"{place.name}: the record at offset {offset}", IN_MEMORY))


def is_member(lead: bytes) -> bool:
    """Return True if a gzip member or Zstandard frame begins with these bytes."""
    return lead[:2] == GZIP_MAGIC or lead[:4] == ZSTD_MAGIC


def decompressor(magic: bytes, place: ByteSource) -> Stream | None:
    """Return a decompressor for one member or frame, or None for plain bytes."""
    if magic[:2] == GZIP_MAGIC:
        return Inflate(GZIP, isal_zlib)
    if magic[:4] == ZSTD_MAGIC:
        try:
            return Zstd(_zstd_dictionary(place))
        except ValueError as error:
            raise DamagedInput(f"{place.name}: the Zstandard dictionary at offset 8 is damaged") from error
    return None


def _zstd_dictionary(place: ByteSource) -> bytes | None:
    """Return the dictionary in the first (skippable) frame of a .warc.zst, or None. Raises ValueError at damage.

    https://iipc.github.io/warc-specifications/specifications/warc-zstd/
    """
    head = place.read(0, 8)
    if head[:4] != b"\x5d\x2a\x4d\x18":
        return None
    size = int.from_bytes(head[4:8], "little")
    if size > MAX_DICTIONARY:
        raise ValueError("it is too large")
    data = place.read(8, size)
    if data[:4] != ZSTD_MAGIC:
        return data
    frame = Zstd()
    dictionary = b"".join(
        bounded_parts(frame.feed(data), MAX_DICTIONARY, lambda: ValueError("it is too large"))
    )
    if not frame.eof:
        raise ValueError("it is cut short")
    return dictionary


def first_part(unpacker: Stream, piece: bytes) -> bytes:
    """Return the first uncompressed bytes of a member, to see its type. Raises ValueError."""
    return next(unpacker.feed(piece), b"")


def unpack_stream(pieces: Iterable[bytes], place: ByteSource, offset: int) -> Iterator[bytes]:
    """Yield the uncompressed bytes of one stored record in pieces.

    Raises DamagedInput at damage, at the latest after the last byte, because the checksum stands at the
    end.
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
    """Return the head of a WARC 1.1 record with its empty line. Line breaks in values become spaces. Raises DamagedInput."""
    lines = ["WARC/1.1", "WARC-Type: " + kind]
    lines += [name + ": " + value for name, value in fields if value]
    lines.append(f"Content-Length: {length}")
    if any("\n" in line or "\r" in line for line in lines):
        lines = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    return in_utf8("\r\n".join(lines) + "\r\n\r\n")


def in_utf8(head: str) -> bytes:
    """Return a head in UTF-8. Raises DamagedInput for half a surrogate pair, which JSON can hold and UTF-8 can't."""
    try:
        return head.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        before = head[: error.start].rpartition("\r\n")[2]
        raise DamagedInput(f"no record can hold half a surrogate pair: it stands after {before!r}") from None


_NAMES = {"sha1": "sha1", "sha256": "sha256", "sha512": "sha512", "sha384": "sha384", "md5": "md5"}


def algorithm_of(declared: str) -> str:
    """Return hashlib's name for the algorithm of a declared digest, or "" if it is unknown."""
    return _NAMES.get(declared.partition(":")[0].lower().replace("-", ""), "")


def same_digest(declared: str, value: Any) -> bool:
    """Return True if a declared digest (hex, base32 or base64) equals that of the hash object `value`."""
    text = declared.partition(":")[2].strip()
    raw = value.digest()
    plain = text.rstrip("=")
    return (
        text.lower() == raw.hex()
        or plain.upper() == base64.b32encode(raw).decode().rstrip("=")
        or plain
        in (base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("="))
    )


_OF_NOTHING = frozenset(
    f"{name}:{text.rstrip('=').lower()}"
    for name in ("md5", "sha1", "sha256", "sha512")
    for raw in [hashlib.new(name, usedforsecurity=False).digest()]
    for text in (raw.hex(), base64.b32encode(raw).decode())
)


def contradicts(digest: str, other: str) -> bool:
    """Return True if two digests prove that two payloads differ: same algorithm and encoding, other value.

    The digest of the empty string proves nothing as the first argument: some tools write it into every
    revisit, because the revisit's own payload is empty.
    """
    one, two = (text.rstrip("=").lower() for text in (digest, other))
    if one in _OF_NOTHING or one.partition(":")[0] != two.partition(":")[0]:
        return False
    return len(one) == len(two) and one != two


class Proof:
    """A streaming check of a record's block against its WARC-Block-Digest."""

    def __init__(self, declared: str | None) -> None:
        declared_algorithm, _, value = (declared or "").partition(":")
        algorithm = algorithm_of(declared_algorithm) if value.strip() else ""
        self._declared = declared or ""
        self._hash = hashlib.new(algorithm, usedforsecurity=False) if algorithm else None

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the block."""
        if self._hash is not None:
            self._hash.update(piece)

    def holds(self) -> bool:
        """Return True if the digest matches, or if the record declares none."""
        return self._hash is None or same_digest(self._declared, self._hash)
