"""Memento (RFC 7089): the captures of a URL as of a date."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING

from stillweb.proxy.net.addresses import OWN_HOST
from stillweb.proxy.replay.replies import Reply, own_reply
from stillweb.snapshots.capture import PARTIAL
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot


def captures_of(snapshot: Snapshot, request: Request) -> list[Capture]:
    """Return the whole answers recorded to a GET, in the order of time."""
    key = request_key(request)
    return sorted(
        (
            c
            for c in snapshot.candidates(key.urlkey)
            if c.method == "GET" and c.key == key.canonical and c.status not in PARTIAL
        ),
        key=lambda c: (c.timestamp, c.begin, c.place),
    )


def is_timegate(snapshot: Snapshot, request: Request) -> bool:
    """Return True if a GET's URL was recorded, by an origin that did not choose by Accept-Datetime itself."""
    found = captures_of(snapshot, request)
    return bool(found) and not any(name.lower() == "accept-datetime" for c in found for name, _ in c.vary)


def without_date(request: Request) -> Request:
    """Return a request without Accept-Datetime."""

    def made(one: Request) -> Request:
        return replace(one, headers=tuple((n, v) for n, v in one.headers if n.lower() != "accept-datetime"))

    return request.derived("undated", made)


def memento_fields(capture: Capture, url: str) -> Headers:
    """Return the fields of an answer whose URL is its own TimeGate (RFC 7089, 4.1.2)."""
    links = ", ".join(_links(f"http://{OWN_HOST}", url))
    return ("Memento-Datetime", http_date(capture)), ("Link", links), ("Vary", "accept-datetime")


def _links(base: str, url: str) -> list[str]:
    return [
        f'<{url}>; rel="original"',
        f'<{base}/timegate/{url}>; rel="timegate"',
        f'<{base}/timemap/link/{url}>; rel="timemap"; type="application/link-format"',
    ]


def page(snapshot: Snapshot, request: Request) -> Reply:
    """Return the TimeMap of a URL, the redirect of its TimeGate, or one of its captures (RFC 7089)."""
    origin, _, rest = request.url.partition("://")[2].partition("/")
    kind, _, url = rest.partition("/")
    base = f"{request.url.partition('://')[0]}://{origin}"
    asked, _, named = url.partition("/")
    if kind in ("timemap", "memento"):
        url = named
    found = captures_of(snapshot, Request("GET", url))
    if not found:
        text = f"stillweb: no capture of {url}\n".encode("utf-8", "replace")
        return own_reply(request, 404, "text/plain; charset=utf-8", text)
    links = _links(base, url)
    if kind == "timemap":
        links += [
            f'<{base}/memento/{c.timestamp}/{url}>; rel="memento"; datetime="{http_date(c)}"' for c in found
        ]
        return own_reply(request, 200, "application/link-format", (",\n".join(links) + "\n").encode())
    link = ("Link", ", ".join(links))
    if kind == "timegate":
        wanted = request.header("accept-datetime")
        moment = moment_of(wanted) if wanted is not None else "9" * 17
        if not moment:
            return own_reply(request, 400, "text/plain", b"stillweb: Accept-Datetime is not an HTTP date\n")
        fields = tuple((n, v) for n, v in without_date(request).headers if n.lower() != "host")
        chosen = (
            snapshot.matcher().lookup(Request("GET", url, fields), at=moment, min_confidence=0.0).capture
            or found[0]
        )
        to = ("Location", f"{base}/memento/{chosen.timestamp}/{url}")
        return own_reply(request, 302, "text/plain", b"", ("Vary", "accept-datetime"), to, link)
    capture = next((c for c in found if c.timestamp == asked), None)
    if capture is None:
        return own_reply(request, 404, "text/plain", b"stillweb: no capture has this timestamp\n")
    stored = snapshot.read(capture)
    kept = [(n, v) for n, v in stored.headers if n.lower() in ("content-type", "content-encoding")]
    head = (
        *kept,
        ("Content-Length", str(len(stored.body))),
        ("Content-Security-Policy", "sandbox"),  # a recorded page must not read the pages here
        ("Memento-Datetime", http_date(capture)),
        link,
    )
    return Reply(stored.status, stored.reason, head, b"" if request.method == "HEAD" else stored.body)


def http_date(capture: Capture) -> str:
    moment = parse_timestamp(capture.timestamp)
    return format_datetime(moment or EPOCH, usegmt=True)


def moment_of(text: str) -> str:
    """Return the 17 digits of an HTTP date's last millisecond; "" for any other text."""
    try:
        return f"{parsedate_to_datetime(text).astimezone(UTC):%Y%m%d%H%M%S}999"
    except (ValueError, TypeError, OverflowError):
        return ""
