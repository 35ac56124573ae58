"""Detect requests of automation libraries (Selenium, CDP) to their local browser or driver.

Such a request can't be replayed: its port changes each time, and it starts or controls a real browser. It must
bypass the proxy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stillweb.proxy.net.addresses import on_this_machine

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture

MOST = 1 << 16  # bytes of an answer to read; a driver's answer to a new session is shorter

ADVICE = (
    "let this machine go past the proxy: --no-proxy 127.0.0.1 --no-proxy localhost "
    '(see docs/recording.md, "Libraries that drive a browser over a socket")'
)


def drives(method: str, url: str, body: str) -> bool:
    """Return True if a request is for a browser, or its driver, on this machine."""
    return _may(method, url) and (_socket(url) or _has_member(body.encode(), "capabilities"))


def drove(out: Path, captures: Iterable[Capture]) -> bool:
    """Return True if one of the captures is a request to a browser or driver on this machine."""
    from stillweb.snapshots import Snapshot

    likely = [capture for capture in captures if _may(capture.method, capture.url)]
    if not likely:
        return False
    with Snapshot.open(out) as snapshot:
        for capture in likely:
            with snapshot.open_body(capture) as body:
                if _socket(capture.url) or _has_member(body.read(MOST), "sessionId"):
                    return True
    return False


def _may(method: str, url: str) -> bool:
    """Return True if a request may be for a browser or driver on this machine.

    Web applications may have a POST /session, too, so the caller checks the JSON body for WebDriver's members.
    """
    begins = method == "POST" and urlsplit(url).path.endswith("/session")
    return (begins or _socket(url)) and on_this_machine(urlsplit(url).hostname or "")


def _socket(url: str) -> bool:
    return "/devtools/browser/" in url


def _has_member(body: bytes, member: str) -> bool:
    """Return True if a JSON object has a member, also inside `value`, where WebDriver's answers have theirs."""
    try:
        said = json.loads(body)
    except ValueError:
        return False
    inner = said.get("value") if isinstance(said, dict) else None
    return any(isinstance(one, dict) and member in one for one in (said, inner))
