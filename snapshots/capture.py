"""A capture: one recorded exchange, as the index knows it and as it is read back."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO

from stillweb.snapshots.request import Headers, Request

PARTIAL = frozenset({206, 304, 412, 416})  # what answers only a request for just that


@dataclass(frozen=True, slots=True)
class Response:
    """A recorded answer. `body` is transfer-decoded but still content-encoded, as stored.

    The headers agree with the bytes: `Transfer-Encoding` is gone and `Content-Length` is right.
    """

    status: int
    reason: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a field, by case-insensitive name."""
        wanted = name.lower()
        return next((v for n, v in self.headers if n.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Capture:
    """A line of the index: where a response (or revisit) lies and what decides if it is an answer.

    `offset` and `length` are of the WARC record in `filename` (bytes, compressed); `request_offset` and
    `request_length` likewise of its request (-1 when the archive holds none). `begin` and `end` are the
    session's event numbers at which the request started and its answer was complete: A happened before B
    if A.end < B.begin. `key` and `exact` are hex SHA-256 of the canonical and the literal request.
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
    vary: tuple[tuple[str, str], ...] = ()  # request values of the fields that the response's Vary names
    cookies: str = ""  # hash of the request's cookies that can decide the answer
    state: str = ""  # id of the server state it was recorded in, "" is the state before any change
    changes: bool = False  # whether this exchange itself may change the state
    # of a revisit: filename, offset, length of the payload's record
    original: tuple[str, int, int] | None = None
    # why only the first of the body was kept (WARC-Truncated); of ours event streams and pictures that did not end
    truncated: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """The stable identity of a capture within its snapshot."""
        return self.filename, self.offset


if TYPE_CHECKING:
    swift_capture = Capture
else:
    # A frozen dataclass sets its fields one by one through object.__setattr__, which takes five times as long as
    # making one that is not frozen, of the same slots, and calling it by its class then.
    _Draft = make_dataclass(
        "_Draft",
        [(f.name, Any) if f.default is MISSING else (f.name, Any, f.default) for f in fields(Capture)],
        slots=True,
    )

    def swift_capture(*values: Any) -> Capture:
        """A capture of the values of its fields, in order."""
        made = _Draft(*values)
        made.__class__ = Capture
        return made


# `vary`, `cookies`, `state` and `changes` of a capture
Stated = tuple[tuple[tuple[str, str], ...], str, str, bool]

_NAMES = [f.name for f in fields(Capture)]
_before = attrgetter(*_NAMES[: _NAMES.index("vary")])
_after = attrgetter(*_NAMES[_NAMES.index("changes") + 1 :])


def with_state(capture: Capture, stated: Stated) -> Capture:
    """A capture with what was found out of its state."""
    values: tuple[Any, ...] = (*_before(capture), *stated, *_after(capture))
    return swift_capture(*values)


@dataclass(slots=True)
class Exchange:
    """What a recorder hands to the writer: one whole exchange, secrets already replaced.

    `body` is transfer-decoded and content-encoded; a file object is read from its start to its end,
    so that a body never has to be in memory.
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
