"""Sequential scan of an archive: every record with its place, and every damage with its offset.

Offsets count stored bytes, so that `warc.read_record` finds the record again. A file in which a record
does not start with its own gzip member (one gzip around all records, records over several members) can't
be read by offset: `scan` raises NotSeekable, and `container.unpacked` makes a plain copy that can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from isal import isal_zlib

from stillweb.snapshots._os.random_access import ByteSource, Unreadable, as_much, chunks
from stillweb.snapshots.decompression import GZIP
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.members import GZIP_HEAD, GZIP_START, GZIP_UNDATED, MAX_WHOLE, Unpacked, heads_of

BUFFER = 1 << 20
AHEAD = 1 << 18  # bytes ahead of a record that the buffer holds at least
# bytes to decompress first if no next member is seen: most requests and many responses are smaller
FIRST = 1 << 11
KEEP = 1 << 18  # bytes of a block that are kept, except of requests
HTTP_KINDS = ("response", "request", "revisit")
UNKNOWN = 1 << 62  # an undeclared length
EMPTY = "an empty member"
_LENGTH = "Content-Length is "
MISSING, TOO_SMALL, TOO_LARGE = f"{_LENGTH}missing", f"{_LENGTH}too small", f"{_LENGTH}too large"


class NotSeekable(Exception):
    """The records of this file can't be read by offset."""


@dataclass(slots=True)
class ScannedRecord:
    """A scanned record. `start` is its block, or the beginning of a large block."""

    offset: int
    length: int  # stored bytes
    kind: str
    fields: warc.Fields
    start: bytes
    size: int  # actual bytes of the block
    payload_at: int  # offset of the payload in the block
    hashes: dict[str, Any] | None = None  # requested digests by "part:algorithm", e.g. "payload:sha256"
    note: str = ""  # a defect that did not prevent reading

    @property
    def uri(self) -> str:
        """The cleaned WARC-Target-URI; see `warc.Record.uri`."""
        return warc.clean_uri(self.fields.get("warc-target-uri", ""))

    @property
    def misfit(self) -> bool:
        """True if Content-Length differs from the block's length: a part of the block may be missing."""
        return self.note.startswith(_LENGTH)


@dataclass(slots=True)
class Damage:
    """Bytes from `offset` to `end` that are no record. `truncated`: the file ends within them."""

    offset: int
    end: int
    message: str
    truncated: bool = False


Wanted = Callable[[str, warc.Fields], tuple[tuple[str, str], ...]]
Pairs = Callable[[int, Unpacked, Unpacked], bool]
_BODIES = ("request", "warcinfo")  # record types whose blocks are always needed


def scan(
    place: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    hashes: Wanted | None = None,
    bodies: bool = True,
    pairs: Pairs | None = None,
) -> Iterator[ScannedRecord | Damage]:
    """Yield every record that begins between `start` and `end`, and every damage.

    `hashes(kind, fields)` names the ("payload" or "block", algorithm) pairs to compute for a record.
    Without `bodies`, the `start` of a record may end with its HTTP head, except for requests and warcinfo;
    its readability is verified all the same (`stillweb.snapshots.warc.members`). `pairs` receives two
    small records at a time, with the offset of the first; the pairs for which it returns True are not
    yielded. Raises NotSeekable.
    """
    end = place.size if end is None else end
    at = start
    buffer = b""
    base = at  # file offset of the buffer
    found: ScannedRecord | Damage | None
    small: Unpacked | None
    ahead: Unpacked | None = None  # the next member, if it was decompressed already
    try:
        while at < end:
            if base + len(buffer) < min(at + AHEAD, place.size):
                base, buffer = at, as_much(place, at, BUFFER)
            lead = buffer[at - base : at - base + 4]
            if lead[:2] == warc.GZIP_MAGIC or lead == warc.ZSTD_MAGIC:
                found, size = None, 0
                if lead[:2] == warc.GZIP_MAGIC:
                    small, ahead = ahead or _small(place, buffer, base, at, bodies), None
                    if small is not None:
                        data, size, unpacked = small
                        after = at + size
                        if pairs is not None and after < end:
                            ahead = _small(place, buffer, base, after, bodies)
                            if ahead is not None and pairs(at, small, ahead):
                                at, ahead = after + ahead[1], None
                                continue
                        found = _sound(data, at, size, unpacked, hashes)
                if found is None:
                    ahead = None
                    found, size = _member(place, at, hashes)
                if isinstance(found, Damage):
                    found.end = size = found.end or _behind(place, at, found)
                    yield found
                    at = size
                    continue
                at += size
                yield found
            elif lead[1:] == b"\x2a\x4d\x18" and lead[0] & 0xF0 == 0x50:  # a skippable Zstandard frame
                size = 8 + int.from_bytes(place.read(at + 4, 4), "little")
                if at + size > place.size:
                    found = Damage(at, place.size, "a skippable frame is cut short")
                    found.end = _behind(place, at, found)
                    yield found
                    at = found.end
                    continue
                at += size
            elif (blank := _blank(buffer, at - base)) > 0:
                at += blank
            else:
                found = _plain(place, at, hashes)
                if isinstance(found, Damage):
                    if not found.truncated:
                        found.end = _behind(place, at, found)
                    yield found
                    at = found.end
                    continue
                yield found
                at += found.length
    except Unreadable as error:
        yield Damage(at, end, f"nothing from here on is taken: {error}")


def _behind(place: ByteSource, at: int, damage: Damage) -> int:
    """Return the offset where reading can go on after damage, and set `damage.truncated`."""
    found = boundary_after(place, at + 1)
    damage.truncated = found is None
    return place.size if found is None else found


def _blank(buffer: bytes, at: int) -> int:
    """Return the length of the padding at `at`: line breaks between plain records, zeros after members."""
    stop = at
    while stop < len(buffer) and buffer[stop] in b"\r\n\0":
        stop += 1
    return stop - at


def _small(place: ByteSource, buffer: bytes, base: int, at: int, bodies: bool) -> Unpacked | None:
    """Return a small member that lies in the buffer, or (without `bodies`) its heads; else None."""
    if not bodies and (found := heads_of(place, buffer, base, at)) is not None:
        return found
    at -= base
    # Feed only the bytes up to the probable start of the next member, so that none are left over. A program
    # that writes no date starts all members alike, and ten bytes are found in a third of the time of three.
    lead = buffer[at : at + GZIP_HEAD] if buffer.startswith(GZIP_UNDATED, at) else GZIP_START
    fed = buffer.find(lead, at + GZIP_HEAD, at + AHEAD)
    if fed < 0:
        fed = buffer.find(GZIP_START, at + GZIP_HEAD, at + AHEAD)
    if fed < 0:
        fed = at + FIRST
    z = isal_zlib.decompressobj(GZIP)
    try:
        data = z.decompress(buffer[at:fed], MAX_WHOLE)
        while not z.eof:
            if fed >= len(buffer) or len(data) >= MAX_WHOLE:
                return None
            piece = buffer[fed : fed + PIECE]
            data = data + z.decompress(piece) if data else z.decompress(piece)
            fed += PIECE
    except warc.zlib_error:
        return None
    return data, min(fed, len(buffer)) - at - len(z.unused_data), len(data)


def _sound(
    data: bytes, offset: int, length: int, unpacked: int, hashes: Wanted | None
) -> ScannedRecord | None:
    """Return the record in a decompressed member (or its heads), or None if it is unsound or incomplete."""
    head = warc.parse_head(data)
    if head is None:
        return None
    fields, start = head
    declared = warc.declared_length(fields)
    whole = len(data) == unpacked
    if declared < 0 or start + declared + 4 != unpacked or (whole and not data.endswith(b"\r\n\r\n")):
        return None
    kind = fields.get("warc-type", "").lower()
    block = data[start : start + declared]
    wanted = hashes(kind, fields) if hashes is not None else ()
    if not whole and (wanted or kind in _BODIES or (kind in HTTP_KINDS and warc.end_of_head(block) is None)):
        return None
    record = ScannedRecord(offset, length, kind, fields, block, declared, payload_at(kind, fields, block))
    if wanted:
        hasher = Hasher(wanted, kind, fields)
        hasher.feed(block)
        record.hashes = hasher.done()
    return record


class _Assembly:
    """A record assembled from a stream of uncompressed bytes: head, start of the block, digests."""

    def __init__(self, hashes: Wanted | None) -> None:
        self._hashes = hashes
        self.fields: warc.Fields | None = None  # set once the head is complete
        self.lead = bytearray()  # bytes of the head until it is complete, then of the block
        self.hasher: Hasher | None = None
        self.declared = 0
        self.size = 0
        self.tail = b""  # bytes of the member after the block
        self._keep = KEEP

    def take(self, data: bytes) -> None:
        """Add the next bytes. Raises ValueError if they can't be a record."""
        if self.fields is None:
            self.lead += data
            head = warc.parse_head(bytes(self.lead))
            if head is None:
                if len(self.lead) > warc.MAX_HEAD:
                    raise ValueError("a compressed member that does not hold a record")
                return
            self.fields, start = head
            kind = self.fields.get("warc-type", "").lower()
            self.hasher = Hasher(self._hashes(kind, self.fields) if self._hashes else (), kind, self.fields)
            self.declared = warc.declared_length(self.fields)
            if self.declared < 0:
                self.declared = UNKNOWN
            if kind == "request":
                self._keep = UNKNOWN
            data = bytes(self.lead[start:])
            self.lead = bytearray()
        room = max(0, self.declared - self.size)
        if room < len(data):
            self.tail = (self.tail + data[room:])[:PIECE]
            data = data[:room]
        if data:
            assert self.hasher is not None
            if len(self.lead) < self._keep:
                self.lead += data[: self._keep - len(self.lead)]
            self.hasher.feed(data)
            self.size += len(data)


def _member(place: ByteSource, at: int, hashes: Wanted | None) -> tuple[ScannedRecord | Damage, int]:
    """Return the record in a gzip member or Zstandard frame of any size, and its stored length."""
    unpacker = warc.decompressor(place.read(at, 4), place)
    assert unpacker is not None
    consumed = 0
    record = _Assembly(hashes)
    try:
        for piece in chunks(place, at, size=PIECE if place.size - at < 1 << 22 else PIECE * 4):
            consumed += len(piece)
            for data in unpacker.feed(piece):
                record.take(data)
            if unpacker.eof:
                break
    except ValueError as error:
        text = str(error)
        return Damage(at, 0, text if text.startswith("a ") else "damaged compressed data"), 0
    if not unpacker.eof:
        # Or damage that looks like an early end: then a record follows.
        return Damage(at, 0, "the record is cut short"), 0
    length = consumed - len(unpacker.rest)
    if record.fields is None:
        if not record.lead.strip(b"\r\n\0"):  # some writers leave an empty member at the end
            return Damage(at, at + length, EMPTY), length
        if _goes_on(place, at + length):
            raise NotSeekable(place.name)
        return Damage(at, 0, "a compressed member that does not hold a record"), 0
    return _settle(place, at, length, record, record.fields)


def _settle(
    place: ByteSource, at: int, length: int, record: _Assembly, fields: warc.Fields
) -> tuple[ScannedRecord, int]:
    """Return the record of a member whose end may differ from its Content-Length, and its stored length."""
    note = ""
    lead, size, tail = bytes(record.lead), record.size, record.tail
    if size < record.declared:
        if record.declared < UNKNOWN and _goes_on(place, at + length):
            raise NotSeekable(place.name)
        if size == len(lead) and lead.endswith(b"\r\n\r\n"):
            lead, size = lead[:-4], size - 4
        note = MISSING if record.declared == UNKNOWN else TOO_LARGE
    elif tail.strip(b"\r\n\0"):
        if warc.starts_record(tail.lstrip(b"\r\n\0")):
            raise NotSeekable(place.name)
        note = TOO_SMALL
    elif tail != b"\r\n\r\n" and "arc" not in fields:
        note = "the record does not end with two line breaks"
    kind = fields.get("warc-type", "").lower()
    found = ScannedRecord(at, length, kind, fields, lead, size, payload_at(kind, fields, lead), note=note)
    found.hashes = record.hasher.done() if record.hasher else None
    return found, length


def _goes_on(place: ByteSource, at: int) -> bool:
    """Return True if the member at `at` continues the record before it, and starts no record."""
    piece = place.read(at, PIECE)
    unpacker = warc.decompressor(piece[:4], place)
    if unpacker is None:
        return False
    try:
        data = warc.first_part(unpacker, piece)
    except ValueError:
        return False
    return bool(data) and not warc.starts_record(data.lstrip(b"\r\n"))


def _plain(place: ByteSource, at: int, hashes: Wanted | None) -> ScannedRecord | Damage:
    """Return the record of an uncompressed file."""
    lead = place.read(at, 1 << 13)
    head = warc.parse_head(lead)
    if head is None and len(lead) == 1 << 13:
        lead = place.read(at, warc.MAX_HEAD)
        head = warc.parse_head(lead)
    if head is None:
        if b"WARC/".startswith(lead[:5]) and at + len(lead) >= place.size:
            return Damage(at, place.size, "the record is cut short", truncated=True)
        return Damage(at, 0, "bytes that are no record")
    fields, start = head
    kind = fields.get("warc-type", "").lower()
    declared = warc.declared_length(fields)
    stop = at + start + declared
    note = ""
    rest = place.read(stop, 1 << 13) if declared >= 0 else b""
    ending, rest = rest[:4], rest.lstrip(b"\r\n")
    fits = not rest or warc.starts_record(rest) or b"WARC/".startswith(rest[:5])  # or a truncated record
    mark = b"\nhttp" if "arc" in fields else b"\nWARC/"
    if declared < 0 or stop > place.size or not fits:
        # without a declared length, the next record may begin at once
        following = next_plain(place, at + start - (declared < 0), mark)
        if declared >= 0 and following >= place.size and stop > place.size:
            return Damage(at, place.size, "the record is cut short", truncated=True)
        if declared < 0 or stop > following:
            note = MISSING if declared < 0 else TOO_LARGE
            tail = place.read(max(following - 4, at + start), min(4, following - at - start))
            stop = following - (len(tail) - len(tail.rstrip(b"\r\n")))
        else:
            note = TOO_SMALL
    elif ending != b"\r\n\r\n" and "arc" not in fields:
        note = "the record does not end with two line breaks"
    size = stop - at - start
    block = place.read(at + start, size if kind == "request" else min(size, KEEP))
    record = ScannedRecord(
        at, stop - at, kind, fields, block, size, payload_at(kind, fields, block), note=note
    )
    if note == TOO_SMALL:
        # skip the bytes beyond the declared length together with the record
        record.length = next_plain(place, stop, mark) - at
    if hashes is not None:
        hasher = Hasher(hashes(kind, fields), kind, fields)
        for piece in chunks(place, at + start, stop):
            hasher.feed(piece)
        record.hashes = hasher.done()
    return record


def payload_at(kind: str, fields: warc.Fields, block: bytes) -> int:
    """Return the offset of the payload in a block: after the HTTP head, or 0 without one."""
    if kind not in HTTP_KINDS:
        return 0
    media = fields.get("content-type", "")
    asks = kind == "request" and media.startswith("application/http")
    if not asks and not warc.has_head(media, block):
        return 0
    end = warc.end_of_head(block)
    return len(block) if end is None else end[1]


class Hasher:
    """Digests of a streamed block and of its payload."""

    def __init__(self, wanted: tuple[tuple[str, str], ...], kind: str, fields: warc.Fields) -> None:
        self._hashes = {pair: hashlib.new(pair[1], usedforsecurity=False) for pair in wanted}
        self._kind = kind
        self._fields = fields
        self._head: bytes | None = b""  # collected until the payload begins

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the block."""
        if not self._hashes:
            return
        payload = piece
        if self._head is not None:
            self._head += piece
            at = payload_at(self._kind, self._fields, self._head)
            ended = at < len(self._head) or warc.end_of_head(self._head) is not None
            if not ended and self._kind in HTTP_KINDS and len(self._head) < warc.MAX_HEAD:
                payload = b""
            else:
                payload, self._head = self._head[at:], None
        for (part, _), value in self._hashes.items():
            value.update(piece if part == "block" else payload)

    def done(self) -> dict[str, Any]:
        """Return the hash objects by "part:algorithm"."""
        return {f"{part}:{name}": value for (part, name), value in self._hashes.items()}


PIECE = 1 << 15  # bytes searched at a time
_PACKED = b"\x1f\x8b\x08", warc.ZSTD_MAGIC
_PLAIN = (b"WARC/1.",)


def next_plain(place: ByteSource, at: int, mark: bytes) -> int:
    """Return the offset of the next plain record after `at`, or the end of the file.

    A candidate is a line that begins with `mark` (which includes the line break before it).
    """
    carried = b""
    for piece in chunks(place, at):
        data = carried + piece
        here = at - len(carried)
        found = data.find(mark)
        while found >= 0:
            if warc.starts_record(place.read(here + found + 1, 1 << 13)):
                return here + found + 1
            found = data.find(mark, found + 1)
        carried = data[-6:]
        at += len(piece)
    return place.size


def boundary_after(place: ByteSource, at: int) -> int | None:
    """Return the offset of the first record at or after `at`, or None.

    Only gzip members and Zstandard frames are searched in a compressed file, and only plain records in any
    other: poorly compressed data may contain WARC heads verbatim, and the body of a plain record may be a
    gzip file.
    """
    marks = _PACKED if is_packed(place) else _PLAIN
    carried = b""
    for piece in chunks(place, at, size=PIECE):
        data = carried + piece
        base = at - len(carried)
        found = -1
        while True:
            found = min((m for mark in marks if (m := data.find(mark, found + 1)) >= 0), default=-1)
            if found < 0:
                break
            if is_boundary(place, base + found):
                return base + found
        carried = data[-8:]
        at += len(piece)
    return None


def is_packed(place: ByteSource) -> bool:
    """Return True if the records of a file are gzip members or Zstandard frames.

    If the first bytes are damaged, the first intact record decides.
    """
    lead = place.read(0, 8)
    if warc.is_member(lead) or lead[1:4] == b"\x2a\x4d\x18":
        return True
    if warc.starts_record(place.read(0, 1 << 13).lstrip(b"\r\n\0")):
        return False
    at = 0
    for piece in chunks(place, 0, size=PIECE):
        for mark in _PACKED:
            found = piece.find(mark)
            while found >= 0:
                if is_boundary(place, at + found):
                    return True
                found = piece.find(mark, found + 1)
        if b"\nWARC/1." in piece:
            return False
        at += len(piece)
    return False


def is_boundary(place: ByteSource, at: int) -> bool:
    """Return True if a record starts at offset `at`."""
    piece = place.read(at, PIECE)
    unpacker = warc.decompressor(piece[:4], place)
    if unpacker is None:
        return warc.starts_record(piece)
    try:
        return warc.starts_record(warc.first_part(unpacker, piece))
    except ValueError:
        return False
