"""Requests that failed while recording: each is a `metadata` record, and no capture.

No standard and no other tool has a record for them. Its URI is a `urn:`, so that no indexer takes it for the
page.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from stillweb.snapshots.dates import iso_date, parse_timestamp
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.keys import request_key, split_url
from stillweb.snapshots.request import Request
from stillweb.snapshots.shapes import must_be_well_formed
from stillweb.snapshots.words import pluralize

MEDIA = "application/vnd.stillweb.failed+json"
START = "urn:failed:"  # followed by the address
TUNNEL = "CONNECT"  # method of a tunnel that was never established; its inner requests are unknown
OPENED = 200  # status that the client of a tunnel got before its origin went silent
KEPT = 1 << 16  # bytes of a request body; of a longer one, the record has the size and the request's key
OTHER = "other"

# Messages of operating systems, mitmproxy and browsers; the first match decides.
_REASONS = {
    "private": r"is not a public address",
    "dns": r"name or service not known|nodename nor servname|name resolution|no address associated|ERR_NAME_|ERR_DNS_|UNKNOWN_HOST",
    "refused": r"connection.refused|connect call failed|ECONNREFUSED|ERR_CONNECTION_REFUSED",
    "unreachable": r"unreachable|no route to host|cannot assign|UNREACH|ERR_INTERNET_DISCONNECTED",
    "timeout": r"timed.?out|time-?out",
    "tls": r"certificate|\btls\b|\bssl\b|handshake|ERR_CERT_|ERR_SSL_|SEC_ERROR",
    "incomplete": r"complete message body|incomplete|received [0-9]+ bytes, expected|ERR_CONTENT_LENGTH_MISMATCH",
    "reset": r"reset(?! by client)|closed(?! by client)|broken pipe|(?<!client )disconnect|ERR_EMPTY_RESPONSE|NET_INTERRUPT|INTERNAL_ERROR|REFUSED_STREAM",
    "protocol": r"protocol|\bHTTP/|status line|\bhead of its answer|transfer coding|length of its body|lengths of its body|ERR_INVALID_",
}
_PATTERNS = {reason: re.compile(pattern, re.I) for reason, pattern in _REASONS.items()}
REASONS = (*_REASONS, OTHER)


def reason_of(message: str) -> str:
    """Return the kind of a failure from its message."""
    return next((reason for reason, pattern in _PATTERNS.items() if pattern.search(message)), OTHER)


class FailureSink(Protocol):
    """The part of a writer that stores failures."""

    def metadata(self, uri: str, value: Any, media: str = ..., date: str = ..., /) -> None:
        """Store a JSON value as a record."""


@dataclass(frozen=True, slots=True)
class ProxyResponse:
    """The answer that the proxy gave to the client instead; `media` is "" without a Content-Type."""

    status: int
    media: str
    body: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request without its secrets: reason (one of REASONS), message (`told`), and time.

    `whole`: the entire request is known. If the record lacks a long body, `left_out` is its size, and `key`
    is the request's canonical key. `waited` is the number of seconds after which a client left that had got
    no answer at all, or 0 if it did not leave.
    """

    request: Request
    reason: str
    message: str
    moment: datetime | None
    session: str = "default"
    proxy_response: ProxyResponse | None = None
    is_whole: bool = True
    left_out: int = 0
    key: str = ""
    seconds_waited: int = 0

    def write(self, writer: FailureSink) -> None:
        """Write the record, dated as the request."""
        uri = START + address_of(self.request.url)
        writer.metadata(uri, self.to_json(), MEDIA, iso_date(self.moment) if self.moment else "")

    @property
    def verdict(self) -> str:
        """The verdict on a request that fails in replay because it failed while recording."""
        return f"failed:{self.reason}"

    @property
    def is_silent_tunnel(self) -> bool:
        """True for an established tunnel whose origin sent nothing."""
        return self.proxy_response is not None and self.proxy_response.status == OPENED

    def to_json(self) -> dict[str, Any]:
        """Return the content of the record."""
        request = self.request
        found: dict[str, Any] = {
            "method": request.method,
            "url": request.url,
            "headers": [list(field) for field in request.headers],
            "key": self.key or request_key(request).canonical,
            "session": self.session,
            "reason": self.reason,
            "told": self.message,
            "whole": self.is_whole,
        }
        if self.proxy_response is not None:
            given = self.proxy_response
            found["given"] = {"status": given.status, "type": given.media, "body": given.body}
        if self.seconds_waited:
            found["waited"] = self.seconds_waited
        if self.left_out:
            found["body_size"] = self.left_out
        elif body := request.body:
            found["body_size"] = len(body)
            if len(body) <= KEPT:
                found["body_base64"] = base64.b64encode(body).decode("ascii")
        return found


def failures_message(count: int) -> str:
    """Return a message about the number of failed requests in a snapshot."""
    more = (
        "it fails again and does not count as a miss"
        if count == 1
        else "they fail again and do not count as misses"
    )
    return f"{pluralize(count, 'request')} failed while recording; in replay {more}"


def address_of(url: str) -> str:
    """Return a URL as WHATWG parses it, without fragment, with its query as written."""
    base, query = split_url(url)
    return base if query is None else f"{base}?{'&'.join(query)}"


def failure_of(block: bytes, timestamp: str, where: str) -> Failure:
    """Parse a record; the inverse of `to_json`. Raises DamagedInput that names `where`."""
    try:
        value: Any = json.loads(block)
        if value["reason"] not in REASONS:
            raise ValueError(f"unknown failure reason: {value['reason']!r}")
        body = base64.b64decode(value.get("body_base64", ""), validate=True)
        must_be_well_formed(json.dumps(value, ensure_ascii=False))
        return Failure(
            Request(
                str(value["method"]),
                str(value["url"]),
                tuple((str(n), str(v)) for n, v in value["headers"]),
                body,
            ),
            value["reason"],
            str(value["told"]),
            parse_timestamp(timestamp),
            str(value["session"]),
            _given(value.get("given")),
            bool(value["whole"]),
            0 if body else int(value.get("body_size", 0)),
            str(value["key"]),
            int(value.get("waited", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedInput(f"{where}: is not a record of a failed request: {error!r}") from error


def _given(value: Any) -> ProxyResponse | None:
    """Parse the answer that the client got.

    Raises ValueError for answers that a foreign archive must not make us send: a success
    (except an empty `OPENED`), or extra header fields.
    """
    if not value:
        return None
    given = ProxyResponse(int(value["status"]), str(value["type"]), str(value["body"]))
    failed = 400 <= given.status < 600 or given == ProxyResponse(OPENED, "", "")
    if not (failed and given.media.isascii() and given.media.isprintable()):
        raise ValueError(f"unexpected record of a failed request: {given.status} {given.media!r}")
    return given
