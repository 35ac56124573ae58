"""What a library says to the browser that it drives (or to its driver) and sends through the proxy, where none can replay it.

The port is another one each time, and what is said starts a browser: it must go past the proxy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stillweb.proxy.wire.addresses import on_this_machine

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture

MOST = 1 << 16  # bytes of an answer; a driver says less of a session

ADVICE = (
    "let this machine go past the proxy: --direct 127.0.0.1 --direct localhost "
    '(see docs/recording.md, "Libraries that drive a browser over a socket")'
)


def drives(method: str, url: str, body: str) -> bool:
    """Whether a request is for a browser, or its driver, on this machine."""
    return _may(method, url) and (_socket(url) or _has_member(body.encode(), "capabilities"))


def drove(out: Path, captures: Iterable[Capture]) -> bool:
    """Whether one of the captures in a directory is such a request."""
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
    """Applications have a POST /session, too: of WebDriver's (Selenium) the JSON has members of its own."""
    begins = method == "POST" and urlsplit(url).path.endswith("/session")
    return (begins or _socket(url)) and on_this_machine(urlsplit(url).hostname or "")


def _socket(url: str) -> bool:
    return "/devtools/browser/" in url


def _has_member(body: bytes, member: str) -> bool:
    """Whether an object of JSON has it, also within `value`, where WebDriver's answers have all of theirs."""
    try:
        said = json.loads(body)
    except ValueError:
        return False
    inner = said.get("value") if isinstance(said, dict) else None
    return any(isinstance(one, dict) and member in one for one in (said, inner))
