"""The gateway's own pages: http://stillweb.local/ in the proxy, or any path on the gateway itself."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Collection
from datetime import UTC
from email.utils import format_datetime, parsedate_to_datetime
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.own_pages import NOTHING, page_fields, refused
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.replies import Reply
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot

LAST_MISSES = 20
_STYLE = (
    "body{font:16px/1.5 system-ui;margin:2rem;max-width:60rem}th{text-align:left;padding-right:2rem;"
    "vertical-align:top}td,code{overflow-wrap:anywhere}"
)
_POLICY = f"{NOTHING}; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"


class Known(Protocol):
    """The gateway's state that the pages show."""

    authority: Authority
    ledger: Ledger

    snapshot: Snapshot

    def status(self) -> dict[str, Any]: ...


def own_page(hub: Known, request: Request, names: Collection[str]) -> Reply:
    """Return `/` (status), `/ledger` (JSONL), `/misses` (JSONL), `/ca.pem` or a page of Memento. They get no ledger lines.

    Only requests for `names`, for addresses and for localhost are answered.
    """
    if why := refused(request.header("host"), request.header("origin"), names):
        return _page(request, 403, "text/plain; charset=utf-8", f"stillweb: {why}.\n".encode())
    path = "/" + request.url.partition("://")[2].partition("/")[2].partition("?")[0]
    if request.method not in ("GET", "HEAD"):
        return _page(
            request, 405, "text/plain", b"stillweb: only GET is answered here\n", ("Allow", "GET, HEAD")
        )
    if path == "/":
        status = hub.status()
        if _wants_html(request.header("accept") or ""):
            return _page(request, 200, "text/html; charset=utf-8", _html(status, hub).encode())
        return _page(request, 200, "application/json", (json.dumps(status, indent=1) + "\n").encode())
    if path.startswith(("/timemap/link/", "/timegate/", "/memento/")):
        return _memento(hub.snapshot, request)
    if path == "/ca.pem":
        name = ("Content-Disposition", 'attachment; filename="stillweb-ca.pem"')
        return _page(request, 200, "application/x-pem-file", hub.authority.certificate_pem, name)
    try:
        if path == "/ledger":
            return _page(request, 200, "application/x-ndjson", hub.ledger.text())
        if path == "/misses":
            lines = [json.dumps(entry, separators=(",", ":")) + "\n" for entry in hub.ledger.misses()]
            return _page(request, 200, "application/x-ndjson", "".join(lines).encode())
    except StillwebError as error:
        return _page(request, 500, "text/plain; charset=utf-8", f"stillweb: {error}\n".encode())
    text = b"stillweb: here are / (status), /ledger, /misses, /ca.pem, /timegate/URL and /timemap/link/URL\n"
    return _page(request, 404, "text/plain; charset=utf-8", text)


def _memento(snapshot: Snapshot, request: Request) -> Reply:
    """Return the TimeMap of a URL, the redirect of its TimeGate, or one of its captures (RFC 7089)."""
    origin, _, rest = request.url.partition("://")[2].partition("/")
    kind, _, url = rest.partition("/")
    base = f"{request.url.partition('://')[0]}://{origin}"
    asked, _, named = url.partition("/")
    if kind in ("timemap", "memento"):
        url = named
    key = request_key(Request("GET", url))
    found = sorted(
        (c for c in snapshot.candidates(key.urlkey) if c.method == "GET" and c.key == key.canonical),
        key=lambda c: (c.timestamp, c.begin, c.place),
    )
    if not found:
        text = f"stillweb: no capture of {url}\n".encode("utf-8", "replace")
        return _page(request, 404, "text/plain; charset=utf-8", text)
    links = [f'<{url}>; rel="original"', f'<{base}/timegate/{url}>; rel="timegate"']
    links.append(f'<{base}/timemap/link/{url}>; rel="timemap"; type="application/link-format"')
    if kind == "timemap":
        links += [
            f'<{base}/memento/{c.timestamp}/{url}>; rel="memento"; datetime="{_http_date(c)}"' for c in found
        ]
        return _page(request, 200, "application/link-format", (",\n".join(links) + "\n").encode())
    told = ("Link", ", ".join(links))
    if kind == "timegate":
        wanted = request.header("accept-datetime")
        moment = _moment(wanted) if wanted is not None else None
        if wanted is not None and moment is None:
            return _page(request, 400, "text/plain", b"stillweb: Accept-Datetime is no HTTP date\n")
        before = [c for c in found if moment is None or c.timestamp.ljust(17, "0") <= moment]
        chosen = before[-1] if before else found[0]  # RFC 7089, 4.5.3: the first, for an earlier moment
        to = ("Location", f"{base}/memento/{chosen.timestamp}/{url}")
        return _page(request, 302, "text/plain", b"", ("Vary", "accept-datetime"), to, told)
    capture = next((c for c in found if c.timestamp == asked), None)
    if capture is None:
        return _page(request, 404, "text/plain", b"stillweb: no capture has this timestamp\n")
    stored = snapshot.read(capture)
    kept = [(n, v) for n, v in stored.headers if n.lower() in ("content-type", "content-encoding")]
    fields = (
        *kept,
        ("Content-Length", str(len(stored.body))),
        ("Content-Security-Policy", "sandbox"),  # a recorded page must not read the pages here
        ("Memento-Datetime", _http_date(capture)),
        told,
    )
    return Reply(stored.status, stored.reason, fields, b"" if request.method == "HEAD" else stored.body)


def _http_date(capture: Capture) -> str:
    moment = parse_timestamp(capture.timestamp)
    return format_datetime(moment or EPOCH, usegmt=True)


def _moment(text: str) -> str | None:
    """Return the 17 digits of an HTTP date's last millisecond; None for any other text."""
    try:
        return f"{parsedate_to_datetime(text).astimezone(UTC):%Y%m%d%H%M%S}999"
    except (ValueError, TypeError, OverflowError):
        return None


def _page(request: Request, status: int, media: str, body: bytes, *more: tuple[str, str]) -> Reply:
    fields = (
        ("Content-Type", media),
        ("Content-Length", str(len(body))),
        *page_fields(_POLICY if media.startswith("text/html") else NOTHING),
        *more,
    )
    return Reply(status, HTTPStatus(status).phrase, fields, b"" if request.method == "HEAD" else body)


def _wants_html(accept: str) -> bool:
    where = accept.find("text/html")
    return where >= 0 and not 0 <= accept.find("application/json") < where


def _html(status: dict[str, Any], hub: Known) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(json.dumps(value) if not isinstance(value, str) else value)}</td></tr>"
        for name, value in status.items()
    )
    try:
        misses = "".join(
            f"<li>{html.escape(entry['method'])} <code>{html.escape(entry['url'])}</code></li>"
            for entry in hub.ledger.misses()[-LAST_MISSES:]
        )
    except StillwebError as error:
        misses = f"<li>{html.escape(str(error))}</li>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Stillweb</title>"
        f"<style>{_STYLE}</style><h1>Stillweb replay</h1>"
        f"<table>{rows}</table><h2>Last misses</h2><ul>{misses or '<li>none</li>'}</ul>"
        "<p><a href=/ledger>ledger</a> · <a href=/misses>misses</a> · <a href=/ca.pem>certificate</a></p></html>"
    )
