"""Scan of an archive file for index lines, which are derived from the records alone.

Every file is scanned once; responses are paired with their requests, revisits with the record that holds
their payload, and each capture gets its key, its state and its identity.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.dates import UNDATED, timestamp_of
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.index.cdxj import entry_line
from stillweb.snapshots.index.pairing import (
    Pairing,
    RequestRecord,
    ResponseRecord,
    UnpairedRecords,
    identity_of,
)
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.shapes import convert, must_be_unicode
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.members import Unpacked
from stillweb.snapshots.warc.scan import EMPTY, Damage, ScannedRecord, Wanted, scan
from stillweb.snapshots.words import pluralize

# version of the lines and of `has_client_fields`; an index on disk of another version is rebuilt
VERSION = 43

Progress = Callable[[int, int], None]  # bytes done, bytes in total
Swift = Callable[[Pairing, int, Unpacked, Unpacked], bool]  # `fast_path.SwiftPairs.take`
ANSWERS = ("response", "revisit", "resource")
PLAIN = ("resource", "conversion", "metadata")  # records whose block is their payload
KINDS = frozenset({*ANSWERS, *PLAIN, "warcinfo", "continuation"})  # known record kinds other than request
_MEDIA = re.compile(r"[^;\s]*")
_SCHEME = re.compile(r"urn:[\w.-]{1,40}:|[A-Za-z][\w+.-]{0,40}:")
_NO_HASH: tuple[tuple[str, str], ...] = ()
_PAYLOAD = (("payload", "sha256"),)
# Browsertrix writes the status 0 if its browser reports none; other tools an interim head before the final one
_NO_STATUS = "no final status in %r, the first line of this response"


@dataclass(slots=True)
class Findings:
    """Result of the scan of an archive file, or of a part of one."""

    answers: list[ResponseRecord] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # lines of views, texts and metadata
    unasked: list[ResponseRecord] = field(default_factory=list)  # answers without a request so far
    questions: list[RequestRecord] = field(default_factory=list)  # requests without an answer so far
    notes: list[str] = field(default_factory=list)
    profile: Profile | None = None  # from the last warcinfo record that has one
    settings: dict[str, Any] | None = None  # of ours; other tools write none
    reached: int = 0  # end offset of the last record
    cut: bool = False  # the file ends within a record
    unpaired: UnpairedRecords = field(default_factory=UnpairedRecords)


def missing_digests(kind: str, fields: warc.Fields) -> tuple[tuple[str, str], ...]:
    """Return the digests to compute for a record: that of the payload, if its fields don't declare it."""
    if kind not in ("response", *PLAIN) or "warc-payload-digest" in fields:
        return _NO_HASH
    return _NO_HASH if kind in PLAIN and "warc-block-digest" in fields else _PAYLOAD


def find(
    place: ByteSource,
    name: str,
    start: int = 0,
    end: int | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    inspect: Callable[[ScannedRecord | Damage], None] | None = None,
    hashes: Wanted | None = None,
    swift: Swift | None = None,
) -> Findings:
    """Scan a file, or the part of it whose records begin between `start` and `end`. Raises `scan.NotSeekable`.

    Records without a partner are left in `alone` and `questions`, for `settle`. `progress` is called with the bytes
    passed since the last call. `inspect` is called with every record, with the digests that `hashes` asks for. `swift`
    may take pairs of records before they are parsed.
    """
    found = Findings()
    pairing = Pairing()
    passed_over: Counter[str] = Counter()  # records that no request asks for
    passed = start

    def advance(offset: int) -> None:
        nonlocal passed
        if progress is not None and offset - passed > 1 << 20:
            progress(offset - passed)
            passed = offset

    def taken(offset: int, one: Unpacked, two: Unpacked) -> bool:
        assert swift is not None
        if not swift(pairing, offset, one, two):
            return False
        found.reached = offset + one[1] + two[1]
        found.unpaired.asked = True
        advance(offset)
        return True

    pairs = taken if swift is not None else None
    wanted = hashes or missing_digests
    # `inspect` gets bodies, too
    for item in scan(place, start, end, hashes=wanted, bodies=inspect is not None, pairs=pairs):
        advance(item.offset)
        if inspect is not None:
            inspect(item)
        found.cut = isinstance(item, Damage) and item.truncated
        if isinstance(item, Damage):
            found.reached = item.end
            found.unpaired.unread.append((item.offset, item.end))
            note = f"{name}: offset {item.offset}: {item.message}"
            # an empty gzip member is odd, but nothing is lost with it
            found.notes.append(note if item.message == EMPTY else DamageNote(note))
            continue
        found.reached = item.offset + item.length
        if item.note:
            found.notes.append(f"{name}: offset {item.offset}: {item.note}")
        date = item.fields.get("warc-date", "")
        if date and timestamp_of(date) == UNDATED:
            found.notes.append(
                f"{name}: offset {item.offset}: {date[:40]!r} is not a date: it counts as undated"
            )
        if item.kind == "request":
            found.unpaired.asked = True
            if _is_http(item.uri):  # else its answer has lost it
                pairing.ask(_question(item))
            continue
        if item.kind not in KINDS:
            found.unpaired.unread.append((item.offset, item.offset + item.length))
        elif item.kind not in ANSWERS and (record_id := item.fields.get("warc-record-id")):
            found.unpaired.ids.add(record_id)
        if item.kind == "warcinfo":
            _learn(found, item)
        elif (answer := _answer(item, name)) is not None:
            pairing.answer(answer)
        elif (line := other_line(item, name)) is not None:
            found.others.append(line)
        elif item.kind != "continuation":  # its first segment is marked
            passed_over[what_of(item.kind, item.uri)] += 1
    if passed_over:
        found.notes.append(f"{name}: left out: {count_records(passed_over)}")
    if progress is not None:
        progress((place.size if end is None else end) - passed)
    found.answers = pairing.pairs
    found.unasked = list(pairing.alone.values())
    found.questions = list(pairing.questions.values())
    return found


def what_of(kind: str, uri: str) -> str:
    """Return the kind of a record with the scheme of its URI (with the first name of a URN), for messages."""
    scheme = _SCHEME.match(uri)
    return f"{kind} of {scheme[0].lower() if scheme else 'no URI'}"


def count_records(counts: Counter[str]) -> str:
    """Return how many records there are, of which kinds."""
    return f"{pluralize(counts.total(), 'record')} ({', '.join(f'{n} {what}' for what, n in sorted(counts.items()))})"


def _learn(found: Findings, item: ScannedRecord) -> None:
    """Set profile and settings from a warcinfo record of ours; note those that can't be read."""
    info = warc.parse_fields(item.start)
    try:
        if text := info.get("stillweb-profile"):
            must_be_unicode(profile := json.loads(text))
            found.profile = Profile.from_json(profile)
        if text := info.get("stillweb-settings"):
            must_be_unicode(settings := json.loads(text))
            found.settings = convert(settings, dict[str, Any])
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        what = f"the warcinfo record at offset {item.offset} has a profile that can't be read: {error}"
        found.notes.append(DamageNote(what))


def media_of(content_type: str) -> str:
    """Return the media type in a Content-Type; "unk" if there is none, as other tools write it."""
    found = _MEDIA.match(content_type.strip())
    return (found[0].lower() if found else "") or "unk"


def _is_http(uri: str) -> bool:
    return uri[:8].lower().startswith(("http://", "https://"))


def _question(item: ScannedRecord) -> RequestRecord:
    uri = item.uri
    request = messages.parse_request(item.start, uri)
    return RequestRecord(
        request,
        request_key(request),
        item.start,
        item.fields.get("warc-record-id", f"at {item.offset}"),
        item.fields.get("warc-concurrent-to", ""),
        uri.partition("#")[0],
        item.fields.get("warc-date", ""),
        item.offset,
        item.length,
    )


def _answer(item: ScannedRecord, name: str) -> ResponseRecord | None:
    """Return the answer in a record, or None if it is not an HTTP response, revisit or resource."""
    fields = item.fields
    kind = item.kind
    uri = item.uri
    if kind not in ANSWERS or not _is_http(uri):
        return None
    get = fields.get
    seen = None
    if kind == "resource":
        media = get("content-type", "")
        head = media.encode()
    else:
        head = item.start[: item.payload_at]
        seen = messages.head_facts(head) if head else None
        media = seen[1] if seen else ""
    begin, _, end = get("warc-stillweb-events", "").partition("-")
    numbered = begin.isdecimal() and end.isdecimal() and len(begin) + len(end) <= 40
    return ResponseRecord(
        uri.partition("#")[0],
        get("warc-date", ""),
        seen[0] if seen else 200,
        media_of(media),
        _payload_digest(item),
        name,
        item.offset,
        item.length,
        get("warc-stillweb-session", ""),
        int(begin) if numbered else 0,
        int(end) if numbered else 0,
        get("warc-protocol", "").lower() or "http/1.1",
        seen[2] if seen else (),
        head,
        get("warc-record-id") or f"at {item.offset} in {name}",
        get("warc-concurrent-to", ""),
        (
            get("warc-refers-to", ""),
            warc.clean_uri(get("warc-refers-to-target-uri", "")),
            get("warc-refers-to-date", ""),
        )
        if kind == "revisit"
        else None,
        # of our records only event streams are truncated: events after their page was seen are left out
        get("warc-truncated", "")
        or ("segment" if "warc-segment-number" in fields else "length" if item.misfit else ""),
        personal=bool(seen and seen[3]),
        fault=_NO_STATUS % _first_line(head) if item.payload_at and (seen is None or seen[0] < 200) else "",
    )


def _first_line(head: bytes) -> str:
    return head.lstrip().partition(b"\n")[0].strip().decode("latin-1")


def _payload_digest(item: ScannedRecord) -> str:
    declared = item.fields.get("warc-payload-digest")
    if declared is None and item.kind in PLAIN:
        declared = item.fields.get("warc-block-digest")  # in these records the block is the payload
    if declared:
        return declared
    value = (item.hashes or {}).get("payload:sha256")
    return "sha256:" + value.hexdigest() if value is not None else ""


def other_line(item: ScannedRecord, name: str) -> bytes | None:
    """Return the line of a resource, metadata or conversion record; None for other records."""
    if item.kind not in PLAIN or not item.uri:
        return None
    return record_line(
        item.kind,
        item.uri,
        item.fields.get("warc-date", ""),
        item.fields.get("content-type", ""),
        _payload_digest(item),
        name,
        item.offset,
        item.length,
        extraction_options(item.fields),
    )


SERVED = "WARC-Stillweb-Extractor", "WARC-Stillweb-Options", "WARC-Stillweb-Identity"


def extraction_options(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return extractor and options of a conversion if they count for its identity (`…-Identity: 2`), else ().

    `fields` are by lower-case name. Records of older snapshots lack that field, so their ids stay as they are.
    """
    extractor, options, version = (fields.get(name.lower(), "") for name in SERVED)
    return (extractor, options) if version == "2" else ()


def record_line(
    kind: str,
    uri: str,
    date: str,
    media: str,
    payload_digest: str,
    name: str,
    offset: int,
    length: int,
    served: tuple[str, ...] = (),
) -> bytes:
    """Return the line of a resource, metadata or conversion record; `served` counts for its identity.

    Its `url` is never that of a page: wabac.js (ReplayWeb.page) looks at `url` alone and would serve a text as the page.
    """
    called = other_name(kind, uri)
    entry = {
        "url": called,
        **({"target": uri} if called != uri else {}),
        "mime": media,
        "digest": payload_digest,
        "length": str(length),
        "offset": str(offset),
        "filename": name,
        "kind": kind,
        "id": identity_of(kind, uri, date, media, payload_digest, *served),
    }
    return entry_line(other_key(kind, uri), timestamp_of(date), entry)


def other_key(kind: str, uri: str) -> str:
    """Return the index key of a resource, metadata or conversion record: its name with white space escaped."""
    return other_name(kind, uri).replace(" ", "%20").replace("\n", "%0A")


def other_name(kind: str, uri: str) -> str:
    """Return the index's name for a record that is not a capture: its URI if a urn, else `urn:<kind>:<uri>`."""
    return uri if uri.startswith("urn:") else f"urn:{kind}:{uri}"
