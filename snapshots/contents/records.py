"""Records of a snapshot, compressed and ready to be appended."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from stillweb.snapshots._os.atomic_write import naming
from stillweb.snapshots._os.random_access import CHUNK
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.dates import iso_date, timestamp_of
from stillweb.snapshots.errors import FULL_DISK
from stillweb.snapshots.identity.header_fields import has_client_fields
from stillweb.snapshots.identity.keys import Key, request_key
from stillweb.snapshots.index import indexing
from stillweb.snapshots.index.pairing import identity_of
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.appending import full_disk
from stillweb.snapshots.warc.members import pack, pack_file

Original = tuple[str, str, tuple[str, int, int]]  # URI, date and place (file, offset, length) of a payload


@dataclass(slots=True)
class RecordPair:
    """An exchange as two records, the request and the response. A large response is in a file."""

    exchange: Exchange
    key: Key
    date: str
    question: bytes
    answer: bytes | BinaryIO
    digest: str  # of the payload
    identity: str
    original: Original | None

    def capture(self, place: tuple[str, int, int], question_at: int) -> Capture:
        exchange, request = self.exchange, self.exchange.request
        media = next((v for n, v in exchange.headers if n.lower() == "content-type"), "")
        return Capture(
            urlkey=self.key.urlkey,
            timestamp=timestamp_of(self.date),
            url=request.url.partition("#")[0],
            method=request.method,
            status=exchange.status,
            mime=indexing.media_of(media),
            digest=self.digest,
            filename=place[0],
            offset=place[1],
            length=place[2],
            request_offset=question_at,
            request_length=len(self.question),
            key=self.key.canonical,
            exact=self.key.exact,
            session=exchange.session,
            begin=exchange.begin,
            end=exchange.end,
            protocol=exchange.protocol,
            vary=messages.vary_values(messages.vary_of(exchange.headers), request.headers),
            original=self.original[2] if self.original else None,
            truncated=exchange.extra.get("WARC-Truncated", ""),
            personal=bool(messages.set_cookies(exchange.headers)) or has_client_fields(request.headers),
        )


class Packer:
    """A maker of records. `serial` numbers them, so that equal records get different ids. Thread-safe."""

    def __init__(self, software: str, folder: Path) -> None:
        self._software = software
        self._folder = folder  # for temporary files, on the disk of the snapshot
        self.serial = itertools.count()

    def record_id(self, kind: str, uri: str, date: str, block: bytes) -> str:
        """Return a UUID (version 8, RFC 9562) from the record's content and serial number."""
        text = f"{next(self.serial)} {kind} {date} {uri} ".encode(errors="surrogatepass")
        value = hashlib.sha256(text + hashlib.sha256(block).digest()).hexdigest()
        return f"<urn:uuid:{value[:8]}-{value[8:12]}-8{value[13:16]}-a{value[17:20]}-{value[20:32]}>"

    def warcinfo(
        self, filename: str, date: str, settings: Mapping[str, Any], profile: Profile | None
    ) -> bytes:
        """Return the first record of an archive file: software, settings, profile. `date` defaults to now."""
        lines = {
            "software": self._software,
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "stillweb-settings": json.dumps(settings, sort_keys=True, ensure_ascii=False),
        }
        if profile is not None:
            lines["stillweb-profile"] = json.dumps(profile.to_json(), sort_keys=True, ensure_ascii=False)
        block = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()
        date = date or iso_date(None)
        fields = [
            ("WARC-Record-ID", self.record_id("warcinfo", filename, date, block)),
            ("WARC-Date", date),
            ("WARC-Filename", filename),
            ("WARC-Block-Digest", warc.digest(block)),
            ("Content-Type", "application/warc-fields"),
        ]
        return pack(warc.build_head("warcinfo", fields, len(block)), block)

    def plain(
        self, kind: str, uri: str, date: str, media: str, block: bytes, extra: Iterable[tuple[str, str]]
    ) -> tuple[bytes, str]:
        """Return a resource, metadata or conversion record, and the digest of its block (its payload)."""
        value = warc.digest(block)
        fields = [
            ("WARC-Record-ID", self.record_id(kind, uri, date, block)),
            ("WARC-Date", date),
            ("WARC-Target-URI", uri),
            *extra,
            ("WARC-Block-Digest", value),
            ("Content-Type", media),
        ]
        return pack(warc.build_head(kind, fields, len(block)), block, 0), value

    def exchange(
        self, exchange: Exchange, stored: Callable[[str], Original | None], stack: contextlib.ExitStack
    ) -> RecordPair:
        """Return an exchange as records.

        If `stored` returns a place for the payload digest, the response becomes a revisit of that place.
        Files stay open as long as `stack`. Raises MissingCapability on a full disk.
        """
        request = exchange.request
        uri = request.url.partition("#")[0]
        date = iso_date(exchange.started)
        common = [("WARC-Date", date), ("WARC-Target-URI", uri)]
        events = f"{exchange.begin}-{exchange.end}"
        session = [("WARC-Stillweb-Session", exchange.session), ("WARC-Stillweb-Events", events)]

        asked = messages.request_block(request)
        asked_id = self.record_id("request", uri, date, asked)
        fields = [
            ("WARC-Record-ID", asked_id),
            *common,
            ("WARC-Block-Digest", warc.digest(asked)),
            ("WARC-Payload-Digest", warc.digest(request.body)),
            *session,
            ("Content-Type", "application/http; msgtype=request"),
        ]
        question = pack(warc.build_head("request", fields, len(asked)), asked)

        body = whole_if_small(exchange.body, stack)
        size, payload = measure(body)
        head = messages.response_head(
            exchange.status, exchange.reason, exchange.headers, size, request.method
        )
        original = stored(payload) if size else None
        kind = "revisit" if original else "response"
        fields = [
            ("WARC-Record-ID", self.record_id(kind, uri, date, head)),
            *common,
            # The second record names the first, because indexers pair them so (cdxj-indexer, pywb).
            ("WARC-Concurrent-To", asked_id),
            ("WARC-IP-Address", exchange.ip or ""),
            ("WARC-Protocol", exchange.protocol),
            ("WARC-Payload-Digest", payload),
            ("WARC-Block-Digest", warc.digest(head) if original else block_digest(head, body)),
        ]
        if original:
            fields += [
                ("WARC-Profile", warc.REVISIT_PROFILE),
                ("WARC-Refers-To-Target-URI", original[0]),
                ("WARC-Refers-To-Date", original[1]),
            ]
        fields += [*session, *exchange.extra.items(), ("Content-Type", "application/http; msgtype=response")]
        if original:
            answer: bytes | BinaryIO = pack(warc.build_head(kind, fields, len(head)), head)
        elif isinstance(body, bytes):
            answer = pack(warc.build_head(kind, fields, len(head) + size), head + body, len(head))
        else:
            answer = self._large(warc.build_head(kind, fields, len(head) + size) + head, body, stack)
        identity = identity_of(
            "capture", uri, date, payload, head, asked, exchange.session, events, exchange.protocol
        )
        return RecordPair(exchange, request_key(request), date, question, answer, payload, identity, original)

    def _large(self, heads: bytes, body: BinaryIO, stack: contextlib.ExitStack) -> BinaryIO:
        """Write a record into a temporary file, and return the file."""
        spool = temporary(stack, self._folder)
        try:
            with naming(self._folder):
                pack_file(spool, heads, pieces(body))
                spool.flush()
        except OSError as error:
            if error.errno in FULL_DISK:
                raise full_disk(self._folder, error) from error
            raise
        return spool


IN_MEMORY = 1 << 20  # bytes above which a body is read and compressed in pieces


def whole_if_small(body: bytes | BinaryIO, stack: contextlib.ExitStack) -> bytes | BinaryIO:
    """Return a small body as bytes, and a large one as a file that can be read again from its start."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if body.seekable():
        body.seek(0)
    lead = body.read(IN_MEMORY + 1)
    while len(lead) <= IN_MEMORY and (more := body.read(IN_MEMORY + 1 - len(lead))):
        lead += more  # a raw stream may return less than requested
    if len(lead) <= IN_MEMORY:
        return lead
    if body.seekable():
        return body
    spool = temporary(stack, None)
    spool.write(lead)
    while piece := body.read(CHUNK):
        spool.write(piece)
    return spool


def temporary(stack: contextlib.ExitStack, folder: Path | None) -> BinaryIO:
    """Return a nameless temporary file that is closed with the stack."""
    import tempfile  # imported late: it loads all compression modules

    spool = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    stack.callback(spool.close)
    return spool


def pieces(body: bytes | BinaryIO) -> Iterator[bytes]:
    """Yield a body's bytes from the start."""
    if isinstance(body, bytes):
        yield body
        return
    body.seek(0)
    while piece := body.read(CHUNK):
        yield piece


def measure(body: bytes | BinaryIO) -> tuple[int, str]:
    """Return the size and the payload digest of a body."""
    if isinstance(body, bytes):
        return len(body), warc.digest(body)
    size, value = 0, hashlib.sha256()
    for piece in pieces(body):
        size += len(piece)
        value.update(piece)
    return size, "sha256:" + value.hexdigest()


def block_digest(head: bytes, body: bytes | BinaryIO) -> str:
    """Return the digest of an HTTP head followed by its body."""
    value = hashlib.sha256(head)
    for piece in pieces(body):
        value.update(piece)
    return "sha256:" + value.hexdigest()
