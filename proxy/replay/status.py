"""The gateway's own pages: http://stillweb.local/ in the proxy, or any path on the gateway itself."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Collection
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.own_pages import NOTHING, refused
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.memento import page
from stillweb.proxy.replay.replies import Reply, own_reply
from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from stillweb.snapshots.request import Request
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
        return page(hub.snapshot, request)
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


def _page(request: Request, status: int, media: str, body: bytes, *more: tuple[str, str]) -> Reply:
    policy = _POLICY if media.startswith("text/html") else NOTHING
    return own_reply(request, status, media, body, *more, policy=policy)


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
