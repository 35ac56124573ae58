"""The index entry of a recorded exchange, its response, and the exchange as a recorder hands it over."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, BinaryIO

import msgspec

from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.request import Headers, Request

TIMING = "WARC-Stillweb-Timing"  # milliseconds to the first byte of an answer, and to its last


def timing_field(first: float, whole: float) -> str:
    """Return the value of the field for seconds to the first and to the last byte."""
    return f"first={max(0, round(first * 1000))};whole={max(0, round(max(first, whole) * 1000))}"


def read_timing(field: str | None) -> tuple[float, float] | None:
    """Return seconds to the first byte, and from it to the last; None if they were not recorded."""
    found = re.fullmatch(r"first=(\d{1,9});whole=(\d{1,9})", field or "")
    if found is None:
        return None
    first, whole = int(found[1]) / 1000, int(found[2]) / 1000
    return first, max(0.0, whole - first)


PARTIAL = frozenset({206, 304, 412, 416})  # statuses that answer only a conditional or range request


@dataclass(frozen=True, slots=True)
class Response:
    """A recorded response. `body` is transfer-decoded but still content-encoded, as stored.

    The headers agree with the bytes: `Transfer-Encoding` is gone and `Content-Length` is right.
    """

    status: int
    reason: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first value of a field, by case-insensitive name; None if the field is absent."""
        wanted = name.lower()
        return next((v for n, v in self.headers if n.lower() == wanted), None)


class Capture(msgspec.Struct, frozen=True, gc=False):
    """A line of the index: where a response (or revisit) lies, and what decides if it answers a request.

    `offset` and `length` are of the WARC record in `filename` (bytes, compressed); `request_offset` and
    `request_length` are those of its request record (-1 and 0 if the archive holds no request). `begin` and
    `end` are the session's event numbers at which the request started and its response was complete: A
    happened before B if A.end < B.begin. `key` and `exact` are hex SHA-256 of the canonical and the literal
    request.

    A struct, since it is made in 0.2 µs; a frozen dataclass sets its fields one by one, in 4 µs.
    """

    urlkey: str
    timestamp: str  # 14 or 17 digits, UTC
    url: str
    method: str
    status: int
    mime: str
    digest: str  # payload digest, "sha256:…" or "sha1:…"
    filename: str
    offset: int
    length: int
    request_offset: int = -1
    request_length: int = 0
    key: str = ""
    exact: str = ""
    session: str = ""
    begin: int = 0
    end: int = 0
    protocol: str = "http/1.1"
    vary: tuple[tuple[str, str], ...] = ()  # request values of the fields named in the response's Vary
    # filename, offset and length of the record with a revisit's payload
    original: tuple[str, int, int] | None = None
    # WARC-Truncated: why the body is cut short. Our recorder cuts event streams and pictures that never end
    truncated: str = ""
    # The answer set a cookie, or the request said something of its client (`identity.header_fields.has_client_fields`)
    personal: bool = False

    @property
    def place(self) -> tuple[str, int]:
        """Return the capture's stable identity within its snapshot: file name and offset."""
        return self.filename, self.offset


@dataclass(slots=True)
class Exchange:
    """One whole exchange as a recorder hands it to the writer, with secrets already replaced.

    `body` is transfer-decoded and content-encoded; a file object is read from its start to its end, so that a
    body never has to be in memory.
    """

    request: Request
    status: int
    reason: str
    headers: Headers
    body: bytes | BinaryIO
    started: datetime  # UTC, aware
    session: str = "default"
    begin: int = 0
    end: int = 0
    protocol: str = "http/1.1"  # or "h2"
    ip: str | None = None
    extra: dict[str, str] = field(default_factory=dict)  # further WARC fields of the response record


# as a snapshot of several names the files of those above the first
_LAYER = re.compile(r"(?<![^/])layer(\d+)/")


@lru_cache(maxsize=1024)
def layer_of(filename: str) -> int:
    """Return the number of a file's layer, from 1. In a layer that is a cut of several they count on."""
    return 1 + sum(int(number) - 1 for number in _LAYER.findall(filename))


@dataclass(slots=True)
class Conversation:
    """A web socket of another tool's recording: its messages as (from the client?, message), and their times.

    `times` are in seconds since 1970. `events` holds the last event number of the session before each message.
    """

    url: str  # http or https
    messages: Sequence[tuple[bool, str | bytes]]
    times: Sequence[float]
    started: datetime  # UTC, aware
    session: str = "default"
    close: tuple[int, str] | None = None  # the code and reason of a server that closed it
    protocol: str | None = None
    headers: Headers | None = None  # of the request
    begin: int = 0
    end: int = 0
    events: Sequence[int] = ()
    left_out: int = 0  # messages

    def to_json(self) -> dict[str, Any]:
        """Return the content of the record (docs/snapshot.md)."""
        messages = []
        for from_client, what in self.messages:
            entry = {"from": "client" if from_client else "server"}
            if isinstance(what, str):
                entry["text"] = what
            else:
                entry["base64"] = base64.b64encode(what).decode("ascii")
            messages.append(entry)
        found: dict[str, Any] = {
            "url": self.url,
            "session": self.session,
            "begin": self.begin,
            "end": self.end,
            "messages": messages,
            "events": list(self.events),
            "times": [round(at * 1000) for at in self.times],
            "left_out": self.left_out,
        }
        if self.close is not None:
            found["close"] = list(self.close)
        if self.protocol is not None:
            found["protocol"] = self.protocol
        if self.headers is not None:
            found["headers"] = [list(one) for one in self.headers]
        return found


def asked(capture: Capture) -> tuple[Any, ...]:
    """Return the identity of a capture's request: key, Vary values, and True for a partial response."""
    return capture.key, capture.vary, capture.status in PARTIAL


VISIT = timedelta(days=1)  # the longest visit of one session, as far as a date is concerned


def is_seen_at(timestamp: str, at: str) -> bool:
    """Return True if a timestamp is not later than `at`: 17 digits, "latest", or "" for as recorded."""
    return at in ("", "latest") or timestamp.ljust(17, "0") <= at


def as_of(captures: Iterable[Capture], at: str) -> list[Capture]:
    """Return the captures that are seen at `at`: none later, and of each request those of its newest visit.

    A visit is one session's captures of at most a day: what a site answered before and after a login or a
    post stays, as both belong to it. Every date that a user or a client names is applied here.
    """
    known = [c for c in captures if is_seen_at(c.timestamp, at)]
    newest: dict[tuple[Any, ...], Capture] = {}
    for capture in known:
        last = newest.get(asked(capture))
        if last is None or (capture.timestamp.ljust(17, "0"), capture.begin) >= (
            last.timestamp.ljust(17, "0"),
            last.begin,
        ):
            newest[asked(capture)] = capture
    return [c for c in known if _of_visit(c, newest[asked(c)])]


def _of_visit(capture: Capture, newest: Capture) -> bool:
    if capture is newest:
        return True
    if not newest.session or capture.session != newest.session:
        return False
    moments = [parse_timestamp(c.timestamp) or EPOCH for c in (capture, newest)]
    return moments[1] - moments[0] < VISIT
