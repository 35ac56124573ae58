"""Checks that the record at an offset is the indexed one: archive files may change after indexing.

Each check raises DamagedInput with file and offset if the record is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.warc.digests import contradicts
from stillweb.snapshots.warc.warc import Fields, clean_uri

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
    """Check the type, target URI and digest of a record that is no HTTP exchange."""
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
