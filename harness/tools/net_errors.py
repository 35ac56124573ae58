"""Chromium's network errors for pages that were missed, or that failed while recording."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

OFFLINE = "net::ERR_INTERNET_DISCONNECTED"  # the error of a miss
_OF_REASONS = {
    "private": "net::ERR_ADDRESS_UNREACHABLE",
    "dns": "net::ERR_NAME_NOT_RESOLVED",
    "refused": "net::ERR_CONNECTION_REFUSED",
    "unreachable": "net::ERR_ADDRESS_UNREACHABLE",
    "timeout": "net::ERR_CONNECTION_TIMED_OUT",
    "tls": "net::ERR_SSL_PROTOCOL_ERROR",
    "reset": "net::ERR_CONNECTION_RESET",
    "incomplete": "net::ERR_CONNECTION_CLOSED",
    "protocol": "net::ERR_INVALID_HTTP_RESPONSE",
}
_VERDICT = re.compile(r"\((miss|failed:[a-z]+)\)")


def of_verdict(verdict: str) -> str:
    """Return the network error of a document with this verdict; "" if it was answered."""
    kind, _, reason = verdict.partition(":")
    if kind == "failed":
        return _OF_REASONS.get(reason, "net::ERR_FAILED")
    return OFFLINE if kind == "miss" else ""


def verdict_in(text: str, url: str, snapshot: Snapshot | None) -> str:
    """Return the verdict on an address from the error of opening it; "" if the gateway did not cause the error."""
    if found := _VERDICT.search(text):
        return found[1]
    # the gateway may have refused the tunnel because it failed while recording
    if "ERR_TUNNEL_CONNECTION_FAILED" in text and snapshot is not None:
        failed = snapshot.matcher().failing.tunnel(url)
        return failed.failure.verdict if failed is not None else ""
    return ""
