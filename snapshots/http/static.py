"""Files that pages are made with and that stay as they are, by their media type."""

from __future__ import annotations

import re

_STATIC = ("image/", "video/", "audio/", "font/", "text/css", "text/javascript", "application/javascript")
_STATIC_ALL = frozenset(
    {"application/x-javascript", "application/wasm", "application/font-woff", "application/pdf"}
)
ASSET = re.compile(r"javascript|css|image/|font|video/|audio/|wasm")  # in the media types of what pages load
FILE_STATUSES = (200, 206, 304)  # of answers that say what a file is


def static_mime(mime: str) -> bool:
    """Return True for the media types of scripts, styles, fonts and pictures, not those of pages or data."""
    return mime.startswith(_STATIC) or mime in _STATIC_ALL


def static(method: str, mime: str, status: int) -> bool:
    """Return True if an answer is a file that stays the same, provided its request never had another answer."""
    return method in ("GET", "HEAD") and static_mime(mime) and status in FILE_STATUSES
