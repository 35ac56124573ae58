"""Importers of recordings that are no archives: HAR (`har`) and mitmproxy flows (`flows`).

WARC, ARC and WACZ files open without import; HAR and flow files are converted when they are opened. An
importer is a function that yields exchanges, and notes on omitted parts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.capture import Conversation, Exchange
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.shapes import must_be_well_formed
from stillweb.snapshots.warc.messages import request_block, response_head
from stillweb.snapshots.warc.warc import MAX_HEAD

# The metadata record of a converted file: its source and the omitted parts.
IMPORT = "urn:stillweb:import"
_FIELDS = 1 << 14  # bytes that a record's own fields may have besides the URL
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # would begin another field of the record


@dataclass(slots=True)
class ImportReport:
    """The result of an import: counts, and notes on omitted parts with the reason."""

    captures: int = 0
    failures: int = 0  # requests without an answer
    views: int = 0
    sockets: int = 0  # web sockets with their messages
    notes: list[str] = field(default_factory=list)
    # the notes about damage
    damaged: list[str] = field(default_factory=list)


Beside = Mapping[str, ByteSource]  # the other files of the zip that holds a file, by name


def exchanges_in(
    place: ByteSource, name: str, lead: bytes, beside: Beside | None = None
) -> Iterable[Exchange | Conversation | Failure | str] | None:
    """Return the exchanges, failed requests and notes in a file, or None if its format is unknown."""
    text = lead.decode(json.detect_encoding(lead), "replace").lstrip()
    if text.startswith("{"):
        from stillweb.snapshots.importers import har

        return _storable(har.exchanges(place, name, beside), name)
    if lead.split(b":", 1)[0].isdigit():
        from stillweb.snapshots.importers import flows

        return _storable(flows.exchanges(place, name), name)
    return None


def _storable(
    found: Iterable[Exchange | Conversation | Failure | str], name: str
) -> Iterator[Exchange | Conversation | Failure | str]:
    """Yield the items found, with a note in place of each exchange that no WARC record can hold."""
    for one in found:
        if not isinstance(one, str):
            try:
                _check(one)
            except (ValueError, OverflowError) as error:
                what = (
                    f"{one.url[:80]!r}"
                    if isinstance(one, Conversation)
                    else (f"{one.request.method[:20]!r} {one.request.url[:80]!r}")
                )
                yield f"{name}: {what}: can't be kept: {error}"
                continue
        yield one


def _check(one: Exchange | Conversation | Failure) -> None:
    """Raise ValueError for text that no record can hold, and OverflowError for a time outside UTC's years."""
    names = [one.url, one.session] if isinstance(one, Conversation) else [one.request.url, one.session]
    if any(map(_CONTROL.search, names)):
        raise ValueError("its URL or session holds a line's end or another control character")
    if isinstance(one, Conversation):
        must_be_well_formed(
            one.url, one.session, *(what for _, what in one.messages if isinstance(what, str))
        )
        one.started.astimezone(UTC)
        return
    request = one.request
    if not _METHOD.fullmatch(request.method):
        raise ValueError("its method is not a token")
    texts = [request.url, *(text for field in request.headers for text in field)]
    if isinstance(one, Failure):
        texts += [one.session, one.message]
    else:
        texts += [one.session, one.reason, one.ip or "", *(text for field in one.headers for text in field)]
        one.started.astimezone(UTC)
        _check_size(response_head(one.status, one.reason, one.headers, 0, request.method))
    must_be_well_formed(*texts)
    _check_size(request_block(replace(request, body=b"")))


def _check_size(head: bytes) -> None:
    if len(head) > MAX_HEAD - _FIELDS:
        raise ValueError(f"its URL and header fields are more than {MAX_HEAD - _FIELDS:,} bytes")


def convert_to_cache(place: ByteSource, name: str, stamp: str, beside: Beside | None = None) -> Path | None:
    """Convert a file into a snapshot directory in the cache. Returns None if its format is unknown."""
    lead = place.read(0, 4096)
    if exchanges_in(place, name, lead) is None:
        return None
    key = hashlib.sha256(f"converted 16 {stamp}".encode(errors="surrogatepass")).hexdigest()[:32]
    folder = cache_dir() / f"{key}-converted"
    if folder.is_dir():
        return folder
    temporary = Path(tempfile.mkdtemp(dir=cache_dir(), prefix=".converting-"))
    try:
        convert(place, name, lead, temporary, beside)
        try:
            os.replace(temporary, folder)
        except OSError:  # another process finished first
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def convert(
    place: ByteSource, name: str, lead: bytes, out: Path, beside: Beside | None = None
) -> ImportReport:
    """Write the exchanges of a file into a new snapshot directory."""
    from stillweb.snapshots.writer import Writer

    found = exchanges_in(place, name, lead, beside)
    if found is None:
        raise DamagedInput(f"{name}: is not a HAR or mitmproxy flow file")
    report = ImportReport()
    with Writer.open(out, software="stillweb import") as writer:
        for one in found:
            if isinstance(one, str):
                report.notes.append(one)
                if isinstance(one, DamageNote):
                    report.damaged.append(one)
            elif isinstance(one, Failure):
                one.write(writer)
                report.failures += 1
            elif isinstance(one, Conversation):
                writer.metadata(one.url, one.to_json(), date=iso_date(one.started))
                report.sockets += 1
            else:
                writer.exchange(one)
                report.captures += 1
        if report.notes:
            writer.metadata(
                IMPORT, {"source": Path(name).name, "notes": report.notes, "damaged": report.damaged}
            )
    return report
