"""Reader of captures in archive files: the request, the response, or the body as a stream."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from stillweb.snapshots._os.random_access import CHUNK, ByteSource, chunks
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.messages import dechunked
from stillweb.snapshots.warc.warc import Fields, Proof, clean_uri, contradicts
from stillweb.snapshots.words import pluralize

LARGE = 1 << 20  # stored bytes from which a record is streamed to get its head

_CLOSING = b"\r\n\r\n"


class Archives:
    """The WARC and ARC files of a snapshot by name. Safe for concurrent reads."""

    def __init__(self, files: Mapping[str, ByteSource]) -> None:
        self.files = files

    def record(self, filename: str, offset: int, length: int) -> warc.Record:
        """Return a record by its place. Raises DamagedInput with file and offset."""
        place = self.files.get(filename)
        if place is None:
            raise DamagedInput(f"{filename}: named by the index but not in the snapshot")
        return warc.read_record(place, offset, length)

    def read(self, capture: Capture) -> Response:
        """Return the whole response of a capture, with headers that match its bytes."""
        record = self.record(capture.filename, capture.offset, capture.length)
        check_answer(record.fields, capture)
        if capture.original is None:
            return answer_in(record, capture.method)
        whole = self.payload(capture.original, capture.method, capture.digest)
        line, headers, _ = messages.split(record.block)
        status = messages.status_line(line)
        if status is None or status[0] == 304:  # server-not-modified: the original's response
            return whole
        if not record.ours:
            headers = messages.agree(headers, whole.body, len(whole.body), status[0], capture.method)
        return Response(*status, headers, whole.body)

    def payload(self, place: tuple[str, int, int], method: str, digest: str = "") -> Response:
        """Return the response to which a revisit refers; `method` and `digest` are the revisit's."""
        record = self.record(*place)
        check_payload(record.fields, place, digest)
        return answer_in(record, method)

    def cut_short(self, capture: Capture) -> str:
        """Return why the body of a capture is incomplete, "" if nothing says so. Raises DamagedInput.

        Only other tools' records are looked into: the recorder and the importers say so themselves (WARC-Truncated).
        A record too large for memory is not.
        """
        if capture.truncated in ("disconnect", "length"):
            return "it was when it was recorded or imported"
        place = capture.original or (capture.filename, capture.offset, capture.length)
        if capture.session or place[2] > LARGE:
            return ""
        try:
            record = self.record(*place)
        except TooLarge:
            return ""
        if record.ours or record.kind != "response":
            return ""
        if reason := record.fields.get("warc-truncated"):
            return f"its record says so (WARC-Truncated: {reason})"
        media = record.fields.get("content-type", "")
        if media.startswith("application/http") and not warc.has_head(media, record.block):
            return "it has no HTTP head, as its record's Content-Type says that it has"
        return messages.cut_short(record.block, capture.method)

    def entry(self, filename: str, entry: Mapping[str, Any]) -> warc.Record:
        """Return the record of an index entry that is not an HTTP exchange. Raises DamagedInput."""
        record = self.record(filename, int(entry["offset"]), int(entry["length"]))
        check_entry(record.fields, filename, entry)
        return record

    def fields(self, capture: Capture) -> warc.Fields:
        """Return the WARC fields of a capture's record, by lower-case name. Raises DamagedInput."""
        place = self.files.get(capture.filename)
        if place is None:
            raise DamagedInput(f"{capture.filename}: named by the index but not in the snapshot")
        return open_block(place, capture.offset, capture.length)[0]

    def head(self, capture: Capture) -> Response:
        """Return the response of a capture without its body.

        In archives of other tools the body is read as well, because Content-Length may have to be
        corrected.
        """
        place = self.files.get(capture.filename)
        if place is not None:
            fields, pieces, _ = open_block(place, capture.offset, capture.length)
            check_answer(fields, capture)
            if "warc-stillweb-session" in fields:
                line, headers, _ = messages.split(_lead(pieces))
                status = messages.status_line(line)
                if status is not None:
                    return Response(*status, headers, b"")
        if (capture.original or (0, 0, capture.length))[2] > LARGE:
            # A record that is damaged or has a wrong length fails here; it is then read whole, which reports
            # the damage.
            with contextlib.suppress(DamagedInput):
                return self._streamed_head(capture)
        try:
            whole = self.read(capture)
        except TooLarge:
            return self._streamed_head(capture)
        return Response(whole.status, whole.reason, whole.headers, b"")

    def read_start(self, capture: Capture, size: int) -> Response:
        """Return the whole response, or at most `size` bytes of a body too large for memory."""
        try:
            return self.read(capture)
        except TooLarge:
            return self.start(capture, size)

    def start(self, capture: Capture, size: int) -> Response:
        """Return the response with its first `size` body bytes, read as a stream. Raises DamagedInput."""
        head = self._streamed_head(capture)
        with self.open_body(capture) as body:
            return Response(head.status, head.reason, head.headers, body.read(size))

    def _streamed_head(self, capture: Capture) -> Response:
        """Return the head of a foreign response whose body is too large for memory. Raises DamagedInput."""
        first = self._opened((capture.filename, capture.offset, capture.length))
        check_answer(first.fields, capture)
        body = first
        if capture.original is not None:
            body = self._opened(capture.original)
            check_payload(body.fields, capture.original, capture.digest)
            if first.status is None or first.status[0] == 304:
                first = body
        sample, size = b"", 0
        with body.stream() as stream:
            while piece := stream.read(CHUNK):
                sample += piece[: messages.SAMPLE + 1 - len(sample)]
                size += len(piece)
        if first.status is None:
            media = first.fields.get("content-type", "") if first.kind == "resource" else ""
            headers = [("Content-Type", media)] if media else []
            return Response(200, "OK", (*headers, ("Content-Length", str(size))), b"")
        fields = messages.agree(first.headers, sample, size, first.status[0], capture.method)
        return Response(*first.status, fields, b"")

    def read_request(self, capture: Capture) -> Request:
        """Return the request of a capture, or a bare one if the archive holds no request record."""
        if capture.request_offset < 0:
            return Request(capture.method, capture.url).signed_in()
        record = self.record(capture.filename, capture.request_offset, capture.request_length)
        check_request(record.fields, capture)
        return messages.parse_request(record.block, record.uri or capture.url)

    def open_body(self, capture: Capture) -> BinaryIO:
        """Open the transfer-decoded body as a stream, for bodies too large for memory."""
        opened = self._opened(capture.original or (capture.filename, capture.offset, capture.length))
        if capture.original is None:
            check_answer(opened.fields, capture)
        else:
            check_payload(opened.fields, capture.original, capture.digest)
        return opened.stream()

    def _opened(self, place: tuple[str, int, int]) -> _Opened:
        file = self.files.get(place[0])
        if file is None:
            raise DamagedInput(f"{place[0]}: named by the index but not in the snapshot")
        fields, pieces, _ = open_block(file, *place[1:])
        lead = _lead(pieces)
        line, headers, start = messages.split(lead)
        kind, status = fields.get("warc-type", "").lower(), messages.status_line(line)
        if kind == "resource" or status is None:
            status, start = None, 0
        body: Iterator[bytes] = itertools.chain([lead[start:]], pieces)
        if status and "warc-stillweb-session" not in fields and messages.is_chunked(headers):
            body = dechunked(body)
        return _Opened(kind, fields, status, headers, body)


@dataclass(slots=True)
class _Opened:
    """A record being read. `status` is None if its block is the payload."""

    kind: str
    fields: warc.Fields
    status: tuple[int, str] | None
    headers: Headers
    body: Iterator[bytes]  # transfer-decoded

    def stream(self) -> BinaryIO:
        return io.BufferedReader(_Pieces(self.body), 1 << 16)


def answer_in(record: warc.Record, method: str) -> Response:
    """Return the response in a whole record."""
    if record.kind == "resource":
        return messages.resource_response(record.fields.get("content-type", ""), record.block)
    return messages.parse_response(record.block, ours=record.ours, method=method)


def _lead(pieces: Iterator[bytes]) -> bytes:
    """Return the first bytes of a block, at least to the end of its HTTP head."""
    lead = b""
    while warc.end_of_head(lead) is None and len(lead) < warc.MAX_HEAD and (piece := next(pieces, b"")):
        lead += piece
    return lead


def open_block(place: ByteSource, offset: int, length: int) -> tuple[warc.Fields, Iterator[bytes], int]:
    """Return a record's fields, its block in pieces, and the block's declared length."""
    stored = chunks(place, offset, offset + length)
    first = next(stored, b"")
    stream = warc.unpack_stream(itertools.chain([first], stored), place, offset)
    lead = b""
    head = None
    while head is None and len(lead) < warc.MAX_HEAD:
        piece = next(stream, b"")
        if not piece:
            break
        lead += piece
        head = warc.parse_head(lead)
    if head is None:
        raise DamagedInput(f"{place.name}: no WARC record at offset {offset}; rebuild the index")
    fields, start = head
    declared = warc.declared_length(fields)
    proof = Proof(None if warc.has_checksum(first) else fields.get("warc-block-digest"))
    block = _limited(itertools.chain([lead[start:]], stream), declared, place.name, offset, proof)
    return fields, block, declared


def _limited(pieces: Iterator[bytes], size: int, name: str, offset: int, proof: Proof) -> Iterator[bytes]:
    """Yield `size` bytes of a block, or all but the closing line breaks if `size` is negative.

    The last piece comes only after the record was read to its end, so that damage shows before the block
    seems complete. Raises DamagedInput, also if the block is too short.
    """
    if size < 0:
        yield from _unended(pieces)
        return
    left = size
    for piece in pieces:
        if len(piece) >= left:
            for _ in pieces:
                pass  # read to the end: its checksum follows
            proof.feed(piece[:left])
            if not proof.holds():
                raise warc.digest_error(name, offset)
            yield piece[:left]
            return
        left -= len(piece)
        proof.feed(piece)
        if piece:
            yield piece
    if left:
        raise DamagedInput(f"{name}: the record at offset {offset} ends {pluralize(left, 'byte')} early")


def _unended(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield everything but the two line breaks that close a record."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) > len(_CLOSING):
            yield held[: -len(_CLOSING)]
            held = held[-len(_CLOSING) :]
    if held := held.removesuffix(_CLOSING):
        yield held


class _Pieces(io.RawIOBase):
    """A raw stream over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


# -- checks that a record is the indexed one, since archive files may change after indexing; else they raise DamagedInput

_PAYLOADS = ("response", "resource")


def check_answer(fields: Fields, capture: Capture) -> None:
    """Check the type, target URI, date and payload digest of the record with the response."""
    wanted = ("revisit",) if capture.original is not None else _PAYLOADS
    digest = _digest(fields)
    if (
        fields.get("warc-type", "").lower() not in wanted
        or _address(fields) != clean_uri(capture.url).strip()
        or timestamp_of(fields.get("warc-date", "")) != capture.timestamp
        or (digest and digest != capture.digest)
    ):
        raise _another(capture.filename, capture.offset)


def check_payload(fields: Fields, place: tuple[str, int, int], digest: str) -> None:
    """Check that a revisit's original record has a payload whose digest is compatible with `digest`."""
    if fields.get("warc-type", "").lower() not in _PAYLOADS or contradicts(digest, _digest(fields)):
        raise _another(place[0], place[1])


def check_request(fields: Fields, capture: Capture) -> None:
    """Check the type of a request record, and its target URI if Stillweb recorded it.

    Other tools may write another URI into the request record.
    """
    ours = bool(capture.session)
    if fields.get("warc-type", "").lower() != "request" or (
        ours and _address(fields) != clean_uri(capture.url).strip()
    ):
        raise _another(capture.filename, capture.request_offset)


def check_entry(fields: Fields, filename: str, entry: Mapping[str, Any]) -> None:
    """Check the type, target URI and digest of a record that is not an HTTP exchange."""
    digest = _digest(fields)
    if (
        fields.get("warc-type", "").lower() != entry.get("kind")
        or clean_uri(fields.get("warc-target-uri", "")) != entry.get("target", entry.get("url"))
        or (digest and digest != entry.get("digest"))
    ):
        raise _another(filename, int(entry["offset"]))


def _address(fields: Fields) -> str:
    return clean_uri(fields.get("warc-target-uri", "")).partition("#")[0].strip()


def _digest(fields: Fields) -> str:
    """Return the declared payload digest, or the block digest of a record whose block is its payload."""
    declared = fields.get("warc-payload-digest")
    if declared is None and fields.get("warc-type", "").lower() not in ("response", "revisit"):
        declared = fields.get("warc-block-digest")
    return declared or ""


def _another(filename: str, offset: int) -> DamagedInput:
    return DamagedInput(
        f"{filename}: another record than was indexed is at offset {offset}; rebuild the index"
    )
